#include <trireme/kernels/cache.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/model/gpt_layer.hpp>

namespace trireme::model {

template <class P>
GptLayer<P>::GptLayer(const Parameters<P>& parameters, const deck::ModelConfig& m,
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
void GptLayer<P>::forward(const Exec& exec, View2<T> out, const Saved& s, const Scratch& scratch,
                          const MicroContext& c) const {
  attend(exec, s, scratch, c);
  widen(exec, s, scratch, c);
  narrow(exec, out, s, scratch, c);
}

template <class P>
void GptLayer<P>::forward_again(const Exec& exec, const Saved& s, const Scratch& scratch,
                                const MicroContext& c) const {
  if (this->recompute_ != Recompute::full) return;
  attend(exec, s, scratch, c);
  widen(exec, s, scratch, c);
}

template <class P>
void GptLayer<P>::attend(const Exec& exec, const Saved& s, const Scratch& scratch,
                         const MicroContext& c) const {
  norm1_.forward(exec, s.y1, s.norm1, s.x);
  const View2<T> y = axis_.gather(exec, scratch.all, s.y1, "attention's input, forward");
  query_key_value_.forward(exec, s.qkv, y);
  kernels::attention_forward<T>(exec, s.o, s.logsumexp, s.qkv,
                                this->attention_shape(extent(s.qkv, 0)),
                                this->attention_dropout(c));
  output_.forward(exec, axis_.partial(scratch.all, s.x1), s.o, axis_.rank());
  axis_.reduce(exec, s.x1, scratch.all, "attention's output, forward");
}

template <class P>
void GptLayer<P>::widen(const Exec& exec, const Saved& s, const Scratch& scratch,
                        const MicroContext& c) const {
  norm2_.forward_residual(exec, s.y2, s.norm2, s.x1, s.x, s.x1, this->attention_site(c));
  const View2<T> y = axis_.gather(exec, scratch.all, s.y2, "feed-forward's input, forward");
  up_.forward(exec, s.h, y);
  // Not in one kernel, which takes GELU before h is rounded: `selective` computes g again from h,
  // and recomputation changes no bit.
  kernels::gelu_forward<T>(exec, s.g, s.h, this->model_.gelu);
}

template <class P>
void GptLayer<P>::narrow(const Exec& exec, View2<T> out, const Saved& s, const Scratch& scratch,
                         const MicroContext& c) const {
  down_.forward(exec, axis_.partial(scratch.all, out), s.g, axis_.rank());
  axis_.reduce(exec, out, scratch.all, "feed-forward's output, forward");
  kernels::residual_dropout_forward<T>(exec, out, s.x1, out, this->feed_forward_site(c));
}

template <class P>
void GptLayer<P>::backward_input(const Exec& exec, View2<T> dx, const Work& w,
                                 const Scratch& scratch, const Saved& s,
                                 const MicroContext& c) const {
  kernels::dropout_backward<T>(exec, this->own_rows(w.dz2), dx, this->feed_forward_site(c));
  axis_.gather(exec, w.dz2, this->own_rows(w.dz2), "feed-forward's output, backward");
  down_.gelu_backward_input(exec, w.dh, w.dz2, s.h, this->model_.gelu);
  up_.backward_input(exec, axis_.partial(scratch.all, w.dy2), w.dh);
  axis_.reduce(exec, w.dy2, scratch.all, "feed-forward's input, backward");
  norm2_.backward_input(exec, dx, w.dy2, s.norm2, s.x1, true);

  kernels::dropout_backward<T>(exec, this->own_rows(w.dz1), dx, this->attention_site(c));
  axis_.gather(exec, w.dz1, this->own_rows(w.dz1), "attention's output, backward");
  output_.backward_input(exec, scratch.d_o, w.dz1);
  kernels::attention_backward<T>(exec, w.dqkv, scratch.d_o, s.o, s.qkv, s.logsumexp,
                                 scratch.attention_work, this->attention_shape(extent(s.qkv, 0)),
                                 this->attention_dropout(c));
  query_key_value_.backward_input(exec, axis_.partial(scratch.all, w.dy1), w.dqkv);
  axis_.reduce(exec, w.dy1, scratch.all, "attention's input, backward");
  norm1_.backward_input(exec, dx, w.dy1, s.norm1, s.x, true);
}

template <class P>
void GptLayer<P>::backward_weight(const Exec& exec, const Work& w, const Scratch& scratch,
                                  const Saved& s, const MicroContext&) const {
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
  if (again) norm1_.forward(exec, s.y1, s.norm1, s.x);  // y1 and y2 lie in the same memory
  query_key_value_.backward_weight(
      exec, w.dqkv, axis_.gather(exec, scratch.all, s.y1, "attention's input, again"));
  norm1_.backward_weight(exec, w.dy1, s.norm1, s.x);
}

template <class P>
void GptLayer<P>::decode(const Exec& exec, View2<T> x, View3<T> key_cache, View3<T> value_cache,
                         std::int64_t position, const Saved& s) const {
  kernels::AttentionShape shape = this->attention_shape(this->model_.sequence);
  shape.batch = extent(x, 0);
  norm1_.forward(exec, s.y1, s.norm1, x);
  query_key_value_.forward(exec, s.qkv, s.y1);
  kernels::cache_append<T>(exec, s.y2, key_cache, value_cache, s.qkv,
                           position);  // y2 holds the queries for a moment
  kernels::attention_decode<T>(exec, s.o, s.y2, key_cache, value_cache, position, shape);
  output_.forward(exec, s.x1, s.o, 0);
  kernels::accumulate<T>(exec, flat(x), flat<const T>(s.x1));
  norm2_.forward(exec, s.y2, s.norm2, x);
  kernels::linear_gelu_forward<T>(exec, s.g, s.h, s.y2, up_.w, up_.b, this->model_.gelu);
  down_.forward(exec, s.x1, s.g, 0);
  kernels::accumulate<T>(exec, flat(x), flat<const T>(s.x1));
}

template class GptLayer<Fp32>;
template class GptLayer<Fp64>;
template class GptLayer<MixedBf16>;
template class GptLayer<MixedFp16>;

}  // namespace trireme::model
