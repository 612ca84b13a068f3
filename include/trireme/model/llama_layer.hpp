#pragma once

#include <trireme/kernels/rotary.hpp>
#include <trireme/model/layer.hpp>
#include <trireme/model/linear.hpp>

namespace trireme::model {

/// Llama's layer (Touvron et al. 2023, arXiv 2302.13971): as GPT's, but for RMSNorm, queries and
/// keys turned by rotary positions, groups of query heads that share keys and values,
///   feed_forward(y) = down(silu(gate y) · (up y)),
/// and no biases. The tensor axis cuts attention by heads of queries, with the keys and values that
/// they use, and the feed-forward by its width.
template <class P>
class LlamaLayer final : public Layer<P> {
 public:
  using typename Layer<P>::T;
  using typename Layer<P>::Saved;
  using typename Layer<P>::Work;
  using typename Layer<P>::Scratch;

  LlamaLayer(const Parameters<P>& parameters, const deck::ModelConfig& model,
             const TensorAxis& axis, std::int64_t layer, Recompute recompute);

  void forward(const Exec& exec, View2<T> out, const Saved& saved, const Scratch& scratch,
               const MicroContext& context) const override;
  void forward_again(const Exec& exec, const Saved& saved, const Scratch& scratch,
                     const MicroContext& context) const override;
  void backward_input(const Exec& exec, View2<T> dx, const Work& work, const Scratch& scratch,
                      const Saved& saved, const MicroContext& context) const override;
  void backward_weight(const Exec& exec, const Work& work, const Scratch& scratch,
                       const Saved& saved, const MicroContext& context) const override;
  void decode(const Exec& exec, View2<T> x, View3<T> key_cache, View3<T> value_cache,
              std::int64_t position, const Saved& scratch) const override;

 private:
  /// Queries and keys of rows at these positions.
  kernels::Rotary rotary(std::int64_t sequence, std::int64_t first_position) const;
  void attend(const Exec& exec, const Saved& saved, const Scratch& scratch,
              const MicroContext& context) const;
  /// The residual sum behind attention and the feed-forward up to its inner activations, and from
  /// there to the output.
  void widen(const Exec& exec, const Saved& saved, const Scratch& scratch,
             const MicroContext& context) const;
  void narrow(const Exec& exec, View2<T> out, const Saved& saved, const Scratch& scratch,
              const MicroContext& context) const;

  using Layer<P>::axis_;
  using Layer<P>::heads_;
  using Layer<P>::key_value_heads_;

  RmsNorm<P> norm1_;
  ColumnParallelLinear<P> query_key_value_;
  RowParallelLinear<P> output_;
  RmsNorm<P> norm2_;
  ColumnParallelLinear<P> gate_up_;
  RowParallelLinear<P> down_;
};

}  // namespace trireme::model
