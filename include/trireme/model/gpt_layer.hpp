#pragma once

#include <trireme/model/layer.hpp>
#include <trireme/model/linear.hpp>

namespace trireme::model {

/// GPT's layer, pre-LayerNorm (Radford et al. 2019; Xiong et al. 2020):
///   x1 = x + dropout(attention(norm(x))),  out = x1 + dropout(feed_forward(norm(x1))).
/// The tensor axis cuts attention by heads and the feed-forward by its width; `gather` and `reduce`
/// of TensorAxis stand around each.
template <class P>
class GptLayer final : public Layer<P> {
 public:
  using typename Layer<P>::T;
  using typename Layer<P>::Saved;
  using typename Layer<P>::Work;
  using typename Layer<P>::Scratch;

  GptLayer(const Parameters<P>& parameters, const deck::ModelConfig& model, const TensorAxis& axis,
           std::int64_t layer, Recompute recompute);

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

  LayerNorm<P> norm1_;
  ColumnParallelLinear<P> query_key_value_;
  RowParallelLinear<P> output_;
  LayerNorm<P> norm2_;
  ColumnParallelLinear<P> up_;
  RowParallelLinear<P> down_;
};

}  // namespace trireme::model
