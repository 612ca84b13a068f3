#pragma once

#include <trireme/architecture/adapter.hpp>
#include <trireme/model/layer_values.hpp>
#include <trireme/model/parameters.hpp>
#include <trireme/model/tensor_axis.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace trireme::model {

template <class P>
struct OperationPlace;

/// The adapter of a product on this rank: for each part of the output columns
/// y[:, part] += factor · dropout(x) Aᵀ Bᵀ, with A [r, M] and B [N_part, r]. Hu et al. 2021, arXiv
/// 2106.09685. Asynchronous on the handle.
template <class P>
class ProductAdapter {
 public:
  using T = typename P::Compute;
  using G = typename P::Gradient;

  /// The objects to which `place` refers must outlive this one.
  ProductAdapter(const architecture::Operation& op, const OperationPlace<P>& place);

  /// Takes memory for DoRA's scales, which keep their values between passes.
  void take_memory(Arena& arena);
  /// Whether outputs have magnitudes. scale() then adds the bias, and the passes below take the
  /// gradient of the unscaled outputs.
  bool scales() const { return !ms_.empty(); }
  /// y [T, N] = m / ‖W + factor · B A‖ y + bias in columns with an adapter; elsewhere y + bias.
  /// Collective on the tensor axis if inputs are split. Liu et al. 2024, arXiv 2402.09353, eq. 5.
  void scale(const StepCall<P>& call, View2<T> y, View1<const T> bias) const;
  /// The gradient of the unscaled outputs, in scratch, from dy [T, N].
  View2<T> unscaled_gradient(const StepCall<P>& call, View2<const T> dy) const;
  /// Adds to the gradient of the magnitudes. `product` writes x Wᵀ to a matrix [T, N], which is
  /// recomputed because it is not stored.
  void magnitude_gradient(const StepCall<P>& call, View2<const T> dy, View2<const T> x,
                          const std::function<void(View2<T>)>& product) const;

  /// Adds to y [T, N]; x [T, M].
  void forward(const StepCall<P>& call, View2<T> y, View2<const T> x) const;
  /// Adds to dx [T, M]; dy [T, N].
  void backward_input(const StepCall<P>& call, View2<T> dx, View2<const T> dy) const;
  /// Adds to the gradients of A and B.
  void backward_weight(const StepCall<P>& call, View2<const T> dy, View2<const T> x) const;

 private:
  struct Down {
    View2<T> a;   // [n r, M], A of one or more parts
    View2<G> da;  // gradient of A, or empty
    std::int64_t first = 0;
  };
  struct Up {
    View2<T> b;              // [N_part, r]
    View2<G> db;             // gradient of B, or empty
    std::int64_t first = 0;  ///< first of its r columns of x Aᵀ
    layout::Slice columns;   ///< columns of y
  };
  /// The magnitudes of a part of the columns.
  struct Magnitudes {
    View1<T> m;
    View1<G> dm;         // gradient of m, or empty
    std::size_t up = 0;  ///< index in ups_
  };

  /// factor · dropout(x) Aᵀ [T, all rows of A].
  View2<T> down(const StepCall<P>& call, View2<const T> x) const;
  /// factor · dy B [T, all rows of A].
  View2<T> up_gradient(const StepCall<P>& call, View2<const T> dy) const;
  /// dropout(x) in scratch, or x itself.
  View2<const T> dropped(const StepCall<P>& call, View2<const T> x) const;
  kernels::Dropout mask(const MicroContext& context) const;
  /// Recomputes the scales if the weights have changed since the last call.
  void find_scales(const StepCall<P>& call) const;
  View2<T> product_scratch(const StepCall<P>& call, View2<const T> y) const;

  const Parameters<P>& parameters_;
  const TensorAxis& axis_;
  std::int64_t rank_;
  std::int64_t rows_;  ///< rows of all A
  double factor_;
  layout::Slice inputs_;  ///< this rank's columns of x
  std::int64_t all_inputs_;
  std::uint32_t site_;
  std::vector<Down> downs_;
  std::vector<Up> ups_;
  std::int64_t outputs_ = 0;    ///< N, with DoRA
  std::vector<Magnitudes> ms_;  ///< with DoRA: one per element of ups_
  View2<T> w_;                  // [N, M], with DoRA
  bool split_inputs_;
  std::string norms_label_;
  View1<G> scales_;    // [N] m / ‖W + factor · B A‖, 1 in other columns
  View1<G> inverses_;  // [N] 1 / ‖W + factor · B A‖
  /// Parameters::version() of the scales, which are valid for many passes.
  mutable std::uint64_t version_ = 0;
};

}  // namespace trireme::model
