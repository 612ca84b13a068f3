#pragma once

#include <trireme/architecture/adapter.hpp>
#include <trireme/model/block_values.hpp>
#include <trireme/model/parameters.hpp>
#include <trireme/model/tensor_axis.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace trireme::model {

template <class P>
struct OperationPlace;

/// The adapter of a product on this rank (LoRA; Hu et al. 2021, arXiv 2106.09685). For each part of
/// the output columns, with A [r, M] and B [N_part, r]: y[:, part] += factor · dropout(x) Aᵀ Bᵀ.
/// Asynchronous on the handle.
template <class P>
class ProductAdapter {
 public:
  using T = typename P::Compute;
  using G = typename P::Gradient;

  /// The objects to which `place` refers must outlive this object.
  ProductAdapter(const architecture::Operation& op, const OperationPlace<P>& place);

  /// Takes memory for DoRA's scales, which are valid in several passes.
  void take_memory(Arena& arena);
  /// Whether outputs have magnitudes (DoRA). If so, scale() adds the bias, and backward_input() and
  /// backward_weight() take the gradient of the unscaled outputs.
  bool scales() const { return !ms_.empty(); }
  /// y [T, N] = m / ‖W + factor · B A‖ y + bias in columns with an adapter; elsewhere y + bias.
  /// Collective on the tensor axis if inputs are split. Liu et al. 2024, arXiv 2402.09353, eq. 5.
  void scale(const PassArguments<P>& call, View2<T> y, View1<const T> bias) const;
  /// Returns the gradient of the unscaled outputs, in scratch, from dy [T, N].
  View2<T> unscaled_gradient(const PassArguments<P>& call, View2<const T> dy) const;
  /// Adds to the gradient of the magnitudes. `product` must write x Wᵀ to a matrix [T, N]: the
  /// forward pass does not keep this product.
  void magnitude_gradient(const PassArguments<P>& call, View2<const T> dy, View2<const T> x,
                          const std::function<void(View2<T>)>& product) const;

  /// Adds the update for x [T, M] to y [T, N].
  void forward(const PassArguments<P>& call, View2<T> y, View2<const T> x) const;
  /// Adds the gradient of x that follows from dy [T, N] to dx [T, M].
  void backward_input(const PassArguments<P>& call, View2<T> dx, View2<const T> dy) const;
  /// Adds to the gradients of A and B; dy [T, N], x [T, M].
  void backward_weight(const PassArguments<P>& call, View2<const T> dy, View2<const T> x) const;

 private:
  struct Down {
    View2<T> a;              // [n r, M], A of one or more parts
    View2<G> da;             // gradient of A; empty if frozen
    std::int64_t first = 0;  ///< first column of x Aᵀ that belongs to `a`
  };
  struct Up {
    View2<T> b;              // [N_part, r]
    View2<G> db;             // gradient of B; empty if frozen
    std::int64_t first = 0;  ///< first of the r columns of x Aᵀ that belong to `b`
    layout::Slice columns;   ///< columns of y
  };
  /// The magnitudes of a part of the columns.
  struct Magnitudes {
    View1<T> m;
    View1<G> dm;         // gradient of m; empty if frozen
    std::size_t up = 0;  ///< index in ups_
  };

  /// factor · x Aᵀ [T, rows of all A], for x after dropout.
  View2<T> down(const PassArguments<P>& call, View2<const T> x) const;
  /// factor · dy B [T, rows of all A].
  View2<T> up_gradient(const PassArguments<P>& call, View2<const T> dy) const;
  /// dropout(x), in scratch; x itself without dropout.
  View2<const T> dropped(const PassArguments<P>& call, View2<const T> x) const;
  kernels::Dropout mask(const MicroContext& context) const;
  /// Recomputes the scales if the weights have changed since the last call.
  void find_scales(const PassArguments<P>& call) const;
  View2<T> product_scratch(const PassArguments<P>& call, View2<const T> y) const;

  const Parameters<P>& parameters_;
  const TensorAxis& axis_;
  std::int64_t source_rows_;  ///< rows of a sample's sources, if the input has these; else 0
  std::int64_t rank_;
  std::int64_t rows_;  ///< number of rows of all A
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
  View1<G> scales_;    // [N] m / ‖W + factor · B A‖, 1 in columns without an adapter
  View1<G> inverses_;  // [N] 1 / ‖W + factor · B A‖
  /// Parameters::version() of the weights from which the scales were computed.
  mutable std::uint64_t version_ = 0;
};

}  // namespace trireme::model
