// Patches of images in an encoder, and rows of images in the places of tokens.
#include <trireme/model/image_operations.hpp>

#include <trireme/architecture/objective.hpp>
#include <trireme/kernels/elementwise.hpp>

#include <algorithm>
#include <array>

namespace trireme::model {

/// CLIP's mean and deviation of colours: Radford et al. 2021, "openai/CLIP", clip.py.
kernels::ImageShape image_shape(const deck::VisionConfig& vision) {
  kernels::ImageShape shape;
  shape.images = vision.images;
  shape.size = vision.image;
  shape.patch = vision.patch;
  shape.class_token = vision.has_class_token();
  if (vision.has_clip_colours()) {
    std::ranges::copy(std::array{0.48145466, 0.4578275, 0.40821073}, shape.mean);
    std::ranges::copy(std::array{0.26862954, 0.26130258, 0.27577711}, shape.deviation);
  }
  return shape;
}

// ---- patches

template <class P>
PatchesOperation<P>::PatchesOperation(const architecture::Operation& op,
                                      const OperationPlace<P>& place)
    : BlockOperation<P>(op),
      axis_(place.axis_of(op.output)),
      shape_(image_shape(place.model().vision)),
      pixels_(architecture::objective_of(place.model()).field(architecture::pixels_field)),
      linear_(place.parameters, place.array(op.arrays.front().name),
              op.arrays.size() > 1 ? place.array(op.arrays[1].name) : "",
              op.arrays.front().shape.front(), place.model().vision.patch_values()) {}

template <class P>
auto PatchesOperation<P>::patches(const PassArguments<P>& c) const -> View2<T> {
  const View2<T> x = c.values.matrix(this->op_.scratch.front());
  kernels::image_patches<T>(c.handle, x, c.context.fields[pixels_], shape_, axis_.rows().offset);
  return x;
}

template <class P>
void PatchesOperation<P>::forward(const PassArguments<P>& c, const BlockOperation<P>*) const {
  linear_.forward(c.handle, c.values.matrix(this->op_.output), patches(c));
}

template <class P>
void PatchesOperation<P>::backward_weight(const PassArguments<P>& c) const {
  linear_.backward_weight(c.handle, c.values.gradient(this->op_.output), patches(c));
}

// ---- class token

template <class P>
ClassTokenOperation<P>::ClassTokenOperation(const architecture::Operation& op,
                                            const OperationPlace<P>& place)
    : BlockOperation<P>(op),
      axis_(place.axis_of(op.output)),
      rows_(place.model().source_sequence()) {
  const std::string name = place.array(op.arrays.front().name);
  token_ = place.parameters.weight(name, op.arrays.front().shape.front());
  dtoken_ = place.parameters.gradient(name, op.arrays.front().shape.front());
}

template <class P>
void ClassTokenOperation<P>::forward(const PassArguments<P>& c, const BlockOperation<P>*) const {
  kernels::add_class_token<T>(c.handle, c.values.matrix(this->op_.output), token_, rows_,
                              axis_.rows().offset);
}

template <class P>
void ClassTokenOperation<P>::backward_weight(const PassArguments<P>& c) const {
  kernels::class_token_backward<T>(c.handle, dtoken_, c.values.gradient(this->op_.output), rows_,
                                   axis_.rows().offset);
}

// ---- pool

template <class P>
PoolOperation<P>::PoolOperation(const architecture::Operation& op, const OperationPlace<P>& place)
    : BlockOperation<P>(op),
      axis_(place.axis_of(op.input())),
      squares_{place.model().vision.patches_per_side(), place.model().vision.pool} {}

template <class P>
void PoolOperation<P>::forward(const PassArguments<P>& c, const BlockOperation<P>*) const {
  const View2<T> own = c.values.matrix(this->op_.input());
  const View2<T> all = axis_.gather(c.handle, c.scratch.all(axis_, own), own, "patches, forward");
  kernels::pool_patches<T>(c.handle, c.values.matrix(this->op_.output), all, squares_);
}

template <class P>
void PoolOperation<P>::backward_input(const PassArguments<P>& c, const BlockOperation<P>*,
                                      bool) const {
  kernels::pool_patches_backward<T>(c.handle, axis_.own_part(c.values.gradient(this->op_.input())),
                                    c.values.gradient(this->op_.output), squares_,
                                    axis_.rows().offset);
}

// ---- splice

template <class P>
SpliceOperation<P>::SpliceOperation(const architecture::Operation& op,
                                    const OperationPlace<P>& place)
    : BlockOperation<P>(op),
      images_axis_(place.axis_of(op.inputs[1])),
      is_shared_(is_shared(place.plan.description, op.inputs[1]) &&
                 !place.is_of_source(op.inputs[1])),
      field_(architecture::objective_of(place.model()).field(architecture::image_rows_field)),
      places_{place.model().sequence, place.model().projected_rows(), place.axis.rows().offset} {}

template <class P>
void SpliceOperation<P>::decode(const PassArguments<P>& c, const ImageDecoding<T>& images) const {
  if (images.places.data() == nullptr)
    return kernels::copy<T>(c.handle, flat(images.rows),
                            flat<const T>(c.values.matrix(this->op_.inputs[1])));
  const View2<T> y = c.values.matrix(this->op_.output);
  kernels::splice_images<T>(c.handle, y, c.values.matrix(this->op_.input()), images.rows,
                            images.places, {extent(y, 0), extent(images.rows, 0), 0});
}

template <class P>
void SpliceOperation<P>::forward(const PassArguments<P>& c, const BlockOperation<P>*) const {
  if (c.decoding != nullptr) return decode(c, c.decoding->images);
  const View2<T> own = c.values.matrix(this->op_.inputs[1]);
  const View2<T> images =
      is_shared_
          ? own
          : images_axis_.gather(c.handle, c.scratch.all(images_axis_, own), own, "images, forward");
  kernels::splice_images<T>(c.handle, c.values.matrix(this->op_.output),
                            c.values.matrix(this->op_.input()), images, rows(c), places_);
}

/// Without sequence parallelism, every rank has the gradients of all tokens, and sends nothing.
template <class P>
void SpliceOperation<P>::backward_input(const PassArguments<P>& c, const BlockOperation<P>*,
                                        bool) const {
  const View2<T> dimages = c.values.gradient(this->op_.inputs[1]);
  if (is_shared_) {
    kernels::splice_images_backward<T>(c.handle, c.values.gradient(this->op_.input()), dimages,
                                       c.values.gradient(this->op_.output), rows(c), places_);
    if (images_axis_.cuts_tokens()) images_axis_.sum(c.handle, dimages, "images, backward");
    return;
  }
  const View2<T> own = images_axis_.own_part(dimages);
  const View2<T> all = c.scratch.all(images_axis_, own);
  kernels::splice_images_backward<T>(c.handle, c.values.gradient(this->op_.input()),
                                     images_axis_.partial(all, own),
                                     c.values.gradient(this->op_.output), rows(c), places_);
  if (images_axis_.cuts_tokens()) images_axis_.reduce(c.handle, own, all, "images, backward");
}

#define TRIREME_INSTANTIATE(P)           \
  template class PatchesOperation<P>;    \
  template class ClassTokenOperation<P>; \
  template class PoolOperation<P>;       \
  template class SpliceOperation<P>;
TRIREME_INSTANTIATE(Fp32)
TRIREME_INSTANTIATE(Fp64)
TRIREME_INSTANTIATE(MixedBf16)
TRIREME_INSTANTIATE(MixedFp16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::model
