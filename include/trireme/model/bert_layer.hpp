#pragma once

#include <trireme/model/layer.hpp>
#include <trireme/model/linear.hpp>

namespace trireme::model {

/// BERT's layer, post-LayerNorm (Devlin et al. 2019, arXiv 1810.04805; Vaswani et al. 2017), from
/// the norm behind the former addition to its own second addition:
///   y1 = norm(x),  x1 = y1 + dropout(attention(y1)),
///   y2 = norm(x1), out = y2 + dropout(feed_forward(y2)).
/// Seen so, it differs from GPT's only in what a half's output is added to, keeps and computes
/// again the same, and the head's norm is the one behind the last layer. The first layer's first
/// norm is that of the embeddings, whose dropout stands behind it. Tokens see all tokens of their
/// sample.
template <class P>
class BertLayer final : public Layer<P> {
 public:
  using typename Layer<P>::T;
  using typename Layer<P>::Saved;
  using typename Layer<P>::Work;
  using typename Layer<P>::Scratch;

  BertLayer(const Parameters<P>& parameters, const deck::ModelConfig& model, const TensorAxis& axis,
            std::int64_t layer, Recompute recompute);

  void forward(const Exec& exec, View2<T> out, const Saved& saved, const Scratch& scratch,
               const MicroContext& context) const override;
  void forward_again(const Exec& exec, const Saved& saved, const Scratch& scratch,
                     const MicroContext& context) const override;
  void backward_input(const Exec& exec, View2<T> dx, const Work& work, const Scratch& scratch,
                      const Saved& saved, const MicroContext& context) const override;
  void backward_weight(const Exec& exec, const Work& work, const Scratch& scratch,
                       const Saved& saved, const MicroContext& context) const override;
  /// An error: an encoder does not go on with a text.
  void decode(const Exec& exec, View2<T> x, View3<T> key_cache, View3<T> value_cache,
              std::int64_t position, const Saved& scratch) const override;

 private:
  bool drops_embeddings(const MicroContext& context) const {
    return this->layer_ == 0 && context.dropout > 0;
  }
  /// y1, with the embeddings' dropout in the first layer.
  void begin(const Exec& exec, const Saved& saved, const MicroContext& context) const;
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
