#pragma once

#include <trireme/architecture/adapter.hpp>
#include <trireme/model/layer_values.hpp>
#include <trireme/model/parameters.hpp>
#include <trireme/model/tensor_axis.hpp>

#include <string>
#include <vector>

namespace trireme::model {

/// The adapter of a product on this rank: for each part of the output columns
/// y[:, part] += factor · dropout(x) Aᵀ Bᵀ, with A [r, M] and B [N_part, r]. Hu et al. 2021, arXiv
/// 2106.09685. Asynchronous on the handle.
template <class P>
class ProductAdapter {
 public:
  using T = typename P::Compute;
  using G = typename P::Gradient;

  /// `prefix`: that of the layer's arrays, "layers.3.". Arguments must outlive this.
  ProductAdapter(const architecture::Operation& op, const std::string& prefix,
                 const Parameters<P>& parameters, const deck::ModelConfig& model,
                 const TensorAxis& axis, const LayerPlan& plan, std::int64_t layer);

  /// Adds to y [T, N]; x [T, M].
  void forward(const StepCall<P>& call, View2<T> y, View2<const T> x) const;
  /// Adds to dx [T, M]; dy [T, N].
  void backward_input(const StepCall<P>& call, View2<T> dx, View2<const T> dy) const;
  /// Adds to the gradients of A and B.
  void backward_weight(const StepCall<P>& call, View2<const T> dy, View2<const T> x) const;

 private:
  struct Down {
    View2<T> a;   // [n r, M], A of one or more parts
    View2<G> da;  // the same, or empty
    std::int64_t first = 0;
  };
  struct Up {
    View2<T> b;              // [N_part, r]
    View2<G> db;             // the same, or empty
    std::int64_t first = 0;  ///< of its r columns of x Aᵀ
    layout::Slice columns;   ///< of y
  };

  /// factor · dropout(x) Aᵀ [T, all rows of A].
  View2<T> down(const StepCall<P>& call, View2<const T> x) const;
  /// factor · dy B, likewise.
  View2<T> up_gradient(const StepCall<P>& call, View2<const T> dy) const;
  /// dropout(x) in scratch, or x itself.
  View2<const T> dropped(const StepCall<P>& call, View2<const T> x) const;
  kernels::Dropout mask(const MicroContext& context) const;

  const TensorAxis& axis_;
  std::int64_t rank_;
  std::int64_t rows_;  ///< of all A
  double factor_;
  layout::Slice inputs_;  ///< this rank's columns of x
  std::int64_t all_inputs_;
  std::uint32_t site_;
  std::vector<Down> downs_;
  std::vector<Up> ups_;
};

}  // namespace trireme::model
