#pragma once

#include <trireme/kernels/images.hpp>
#include <trireme/model/operations.hpp>

#include <cstddef>

namespace trireme::model {

/// The images of a model, in an encoder.
kernels::ImageShape image_shape(const deck::VisionConfig& vision);

/// y = patches(pixels) Wᵀ + bias, for this rank's rows. The values of patches are computed again in
/// the backward pass.
template <class P>
class PatchesOperation final : public BlockOperation<P> {
 public:
  using typename BlockOperation<P>::T;
  PatchesOperation(const architecture::Operation& operation, const OperationPlace<P>& place);

  void forward(const PassArguments<P>& call, const BlockOperation<P>* fused) const override;
  void backward_input(const PassArguments<P>&, const BlockOperation<P>*, bool) const override {}
  void backward_weight(const PassArguments<P>& call) const override;

 private:
  /// The values [R', 3 p²] of this rank's patches.
  View2<T> patches(const PassArguments<P>& call) const;

  const TensorAxis& axis_;
  kernels::ImageShape shape_;
  std::size_t pixels_;  ///< index of the field of pixels
  Linear<P> linear_;
};

/// y[r] += token in the first row of each image, in place.
template <class P>
class ClassTokenOperation final : public BlockOperation<P> {
 public:
  using typename BlockOperation<P>::T;
  ClassTokenOperation(const architecture::Operation& operation, const OperationPlace<P>& place);

  void forward(const PassArguments<P>& call, const BlockOperation<P>* fused) const override;
  void backward_input(const PassArguments<P>&, const BlockOperation<P>*, bool) const override {}
  void backward_weight(const PassArguments<P>& call) const override;

 private:
  const TensorAxis& axis_;
  std::int64_t rows_;  ///< of an image
  View1<T> token_;
  View1<typename P::Gradient> dtoken_;  ///< empty if frozen
};

/// y = the means of squares of patches, on every rank: with sequence parallelism, the rows of
/// patches are gathered from the tensor ranks.
template <class P>
class PoolOperation final : public BlockOperation<P> {
 public:
  using typename BlockOperation<P>::T;
  PoolOperation(const architecture::Operation& operation, const OperationPlace<P>& place);

  void forward(const PassArguments<P>& call, const BlockOperation<P>* fused) const override;
  void backward_input(const PassArguments<P>& call, const BlockOperation<P>* fused,
                      bool accumulate) const override;

 private:
  const TensorAxis& axis_;
  kernels::PatchSquares squares_;
};

/// out = x, with rows of images in the places of their tokens. With sequence parallelism, the rows
/// of images are gathered from the tensor ranks, unless each has them, and their gradients are sums
/// over the ranks.
template <class P>
class SpliceOperation final : public BlockOperation<P> {
 public:
  using typename BlockOperation<P>::T;
  SpliceOperation(const architecture::Operation& operation, const OperationPlace<P>& place);

  void forward(const PassArguments<P>& call, const BlockOperation<P>* fused) const override;
  void backward_input(const PassArguments<P>& call, const BlockOperation<P>* fused,
                      bool accumulate) const override;

 private:
  void decode(const PassArguments<P>& call, const ImageDecoding<T>& images) const;
  View1<const std::int32_t> rows(const PassArguments<P>& call) const {
    return call.context.fields[field_];
  }

  const TensorAxis& images_axis_;
  bool is_shared_;     ///< whether all tensor ranks have all rows of images
  std::size_t field_;  ///< index of the field of images' rows
  kernels::ImagePlaces places_;
};

}  // namespace trireme::model
