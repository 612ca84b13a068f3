#include <trireme/base/check.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/model/bert_layer.hpp>

namespace trireme::model {

template <class P>
BertLayer<P>::BertLayer(const Parameters<P>& parameters, const deck::ModelConfig& m,
                        const TensorAxis& axis, std::int64_t layer, Recompute recompute)
    : Layer<P>(parameters, m, axis, layer, recompute),
      norm1_(parameters, array_name(layer, "attention_norm"), m),
      query_key_value_(parameters, array_name(layer, "attention.query"),
                       array_name(layer, "attention.query_bias"), 3 * heads_.extent * m.head_size(),
                       m.hidden),
      output_(parameters, array_name(layer, "attention.output"),
              array_name(layer, "attention.output_bias"), m.hidden, heads_.extent * m.head_size()),
      norm2_(parameters, array_name(layer, "feed_forward_norm"), m),
      up_(parameters, array_name(layer, "feed_forward.up"),
          array_name(layer, "feed_forward.up_bias"), parameters.shard().part(m.feed_forward).extent,
          m.hidden),
      down_(parameters, array_name(layer, "feed_forward.down"),
            array_name(layer, "feed_forward.down_bias"), m.hidden,
            parameters.shard().part(m.feed_forward).extent) {}

template <class P>
void BertLayer<P>::forward(const Exec& exec, View2<T> out, const Saved& s, const Scratch& scratch,
                           const MicroContext& c) const {
  attend(exec, s, scratch, c);
  widen(exec, s, scratch, c);
  narrow(exec, out, s, scratch, c);
}

template <class P>
void BertLayer<P>::forward_again(const Exec& exec, const Saved& s, const Scratch& scratch,
                                 const MicroContext& c) const {
  if (this->recompute_ != Recompute::full) return;
  attend(exec, s, scratch, c);
  widen(exec, s, scratch, c);
}

template <class P>
void BertLayer<P>::begin(const Exec& exec, const Saved& s, const MicroContext& c) const {
  norm1_.forward(exec, s.y1, s.norm1, s.x);
  if (drops_embeddings(c))
    kernels::dropout_forward<T>(exec, s.y1, s.y1, c.dropout_site(0, axis_.rows().offset));
}

template <class P>
void BertLayer<P>::attend(const Exec& exec, const Saved& s, const Scratch& scratch,
                          const MicroContext& c) const {
  begin(exec, s, c);
  const View2<T> y = axis_.gather(exec, scratch.all, s.y1, "attention's input, forward");
  query_key_value_.forward(exec, s.qkv, y);
  kernels::attention_forward<T>(exec, s.o, s.logsumexp, s.qkv,
                                this->attention_shape(extent(s.qkv, 0)),
                                this->attention_dropout(c));
  output_.forward(exec, axis_.partial(scratch.all, s.x1), s.o, axis_.rank());
  axis_.reduce(exec, s.x1, scratch.all, "attention's output, forward");
}

template <class P>
void BertLayer<P>::widen(const Exec& exec, const Saved& s, const Scratch& scratch,
                         const MicroContext& c) const {
  norm2_.forward_residual(exec, s.y2, s.norm2, s.x1, s.y1, s.x1, this->attention_site(c));
  const View2<T> y = axis_.gather(exec, scratch.all, s.y2, "feed-forward's input, forward");
  up_.forward(exec, s.h, y);
  kernels::gelu_forward<T>(exec, s.g, s.h, this->model_.gelu);
}

template <class P>
void BertLayer<P>::narrow(const Exec& exec, View2<T> out, const Saved& s, const Scratch& scratch,
                          const MicroContext& c) const {
  down_.forward(exec, axis_.partial(scratch.all, out), s.g, axis_.rank());
  axis_.reduce(exec, out, scratch.all, "feed-forward's output, forward");
  kernels::residual_dropout_forward<T>(exec, out, s.y2, out, this->feed_forward_site(c));
}

template <class P>
void BertLayer<P>::backward_input(const Exec& exec, View2<T> dx, const Work& w,
                                  const Scratch& scratch, const Saved& s,
                                  const MicroContext& c) const {
  kernels::dropout_backward<T>(exec, this->own_rows(w.dz2), dx, this->feed_forward_site(c));
  axis_.gather(exec, w.dz2, this->own_rows(w.dz2), "feed-forward's output, backward");
  down_.gelu_backward_input(exec, w.dh, w.dz2, s.h, this->model_.gelu);
  up_.backward_input(exec, axis_.partial(scratch.all, w.dy2), w.dh);
  axis_.reduce(exec, w.dy2, scratch.all, "feed-forward's input, backward");
  kernels::accumulate<T>(exec, flat(w.dy2), flat<const T>(dx));  // y2 went past the half, too
  norm2_.backward_input(exec, dx, w.dy2, s.norm2, s.x1, false);

  kernels::dropout_backward<T>(exec, this->own_rows(w.dz1), dx, this->attention_site(c));
  axis_.gather(exec, w.dz1, this->own_rows(w.dz1), "attention's output, backward");
  output_.backward_input(exec, scratch.d_o, w.dz1);
  kernels::attention_backward<T>(exec, w.dqkv, scratch.d_o, s.o, s.qkv, s.logsumexp,
                                 scratch.attention_work, this->attention_shape(extent(s.qkv, 0)),
                                 this->attention_dropout(c));
  query_key_value_.backward_input(exec, axis_.partial(scratch.all, w.dy1), w.dqkv);
  axis_.reduce(exec, w.dy1, scratch.all, "attention's input, backward");
  kernels::accumulate<T>(exec, flat(w.dy1), flat<const T>(dx));
  if (drops_embeddings(c))
    kernels::dropout_backward<T>(exec, w.dy1, w.dy1, c.dropout_site(0, axis_.rows().offset));
  norm1_.backward_input(exec, dx, w.dy1, s.norm1, s.x, false);
}

template <class P>
void BertLayer<P>::backward_weight(const Exec& exec, const Work& w, const Scratch& scratch,
                                   const Saved& s, const MicroContext& c) const {
  // Only this rank's rows of the products' inputs were kept: they are gathered again.
  const bool again = this->recompute_ == Recompute::selective;
  if (again) kernels::gelu_forward<T>(exec, s.g, s.h, this->model_.gelu);
  down_.backward_weight(exec, w.dz2, s.g);
  down_.backward_bias(exec, this->own_rows(w.dz2));
  if (again) norm2_.forward(exec, s.y2, s.norm2, s.x1);
  up_.backward_weight(exec, w.dh,
                      axis_.gather(exec, scratch.all, s.y2, "feed-forward's input, again"));
  norm2_.backward_weight(exec, w.dy2, s.norm2, s.x1);
  output_.backward_weight(exec, w.dz1, s.o);
  output_.backward_bias(exec, this->own_rows(w.dz1));
  if (again) begin(exec, s, c);  // y1 and y2 lie in the same memory
  query_key_value_.backward_weight(
      exec, w.dqkv, axis_.gather(exec, scratch.all, s.y1, "attention's input, again"));
  norm1_.backward_weight(exec, w.dy1, s.norm1, s.x);
}

template <class P>
void BertLayer<P>::decode(const Exec&, View2<T>, View3<T>, View3<T>, std::int64_t,
                          const Saved&) const {
  check(false, "an encoder does not go on with a text token by token");
}

template class BertLayer<Fp32>;
template class BertLayer<Fp64>;
template class BertLayer<MixedBf16>;
template class BertLayer<MixedFp16>;

}  // namespace trireme::model
