#include <trireme/kernels/cache.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/model/block.hpp>

#include <cmath>

namespace trireme::model {
namespace {

std::string array(std::int64_t layer, const char* name) {
  return text("layers.", layer, ".", name);
}

}  // namespace

template <class P>
Block<P>::Block(const Parameters<P>& parameters, const deck::ModelConfig& m, const TensorAxis& axis,
                std::int64_t layer, Recompute recompute)
    : model_(m),
      axis_(axis),
      heads_(parameters.shard().part(m.heads)),
      layer_(layer),
      recompute_(recompute),
      norm1_(parameters, array(layer, "attention_norm"), m.hidden),
      query_key_value_(parameters, array(layer, "attention.query"),
                       array(layer, "attention.query_bias"), 3 * heads_.extent * m.head_size(),
                       m.hidden),
      output_(parameters, array(layer, "attention.output"), array(layer, "attention.output_bias"),
              m.hidden, heads_.extent * m.head_size()),
      norm2_(parameters, array(layer, "feed_forward_norm"), m.hidden),
      up_(parameters, array(layer, "feed_forward.up"), array(layer, "feed_forward.up_bias"),
          parameters.shard().part(m.feed_forward).extent, m.hidden),
      down_(parameters, array(layer, "feed_forward.down"), array(layer, "feed_forward.down_bias"),
            m.hidden, parameters.shard().part(m.feed_forward).extent) {}

template <class P>
auto Block<P>::cut_shared(Arena& arena, const architecture::LocalSizes& n, Recompute recompute)
    -> Saved {
  Saved s;
  if (recompute == Recompute::none) return s;
  s.y1 = s.y2 = arena.take<T>(n.rows, n.hidden);
  s.g = arena.take<T>(n.tokens, n.feed_forward);
  if (recompute == Recompute::selective) return s;
  s.y2 = arena.take<T>(n.rows, n.hidden);
  s.qkv = arena.take<T>(n.tokens, 3 * n.attention());
  s.o = arena.take<T>(n.tokens, n.attention());
  s.x1 = arena.take<T>(n.rows, n.hidden);
  s.h = arena.take<T>(n.tokens, n.feed_forward);
  s.logsumexp = arena.take<Accumulate<T>>(n.micro, n.heads, n.sequence);
  s.norm1 = Norm<P>::Saved::cut(arena, n.rows);
  s.norm2 = Norm<P>::Saved::cut(arena, n.rows);
  return s;
}

template <class P>
auto Block<P>::cut_saved(Arena& arena, const architecture::LocalSizes& n, Recompute recompute,
                         const Saved& shared) -> Saved {
  Saved s = shared;
  s.x = arena.take<T>(n.rows, n.hidden);
  if (recompute == Recompute::full) return s;
  s.qkv = arena.take<T>(n.tokens, 3 * n.attention());
  s.o = arena.take<T>(n.tokens, n.attention());
  s.x1 = arena.take<T>(n.rows, n.hidden);
  s.h = arena.take<T>(n.tokens, n.feed_forward);
  s.logsumexp = arena.take<Accumulate<T>>(n.micro, n.heads, n.sequence);
  s.norm1 = Norm<P>::Saved::cut(arena, n.rows);
  s.norm2 = Norm<P>::Saved::cut(arena, n.rows);
  if (recompute == Recompute::selective) return s;
  s.y1 = arena.take<T>(n.rows, n.hidden);
  s.y2 = arena.take<T>(n.rows, n.hidden);
  s.g = arena.take<T>(n.tokens, n.feed_forward);
  return s;
}

template <class P>
auto Block<P>::cut_work(Arena& arena, const architecture::LocalSizes& n) -> Work {
  Work w;
  w.dz2 = arena.take<T>(n.tokens, n.hidden);
  w.dh = arena.take<T>(n.tokens, n.feed_forward);
  w.dy2 = arena.take<T>(n.rows, n.hidden);
  w.dz1 = arena.take<T>(n.tokens, n.hidden);
  w.dqkv = arena.take<T>(n.tokens, 3 * n.attention());
  w.dy1 = arena.take<T>(n.rows, n.hidden);
  return w;
}

template <class P>
auto Block<P>::cut_scratch(Arena& arena, const architecture::LocalSizes& n, bool training)
    -> Scratch {
  Scratch scratch;
  if (n.cuts_tokens) scratch.all = arena.take<T>(n.tokens, n.hidden);
  if (!training) return scratch;
  kernels::AttentionShape shape;
  shape.batch = n.micro;
  shape.sequence = n.sequence;
  shape.heads = shape.key_value_heads = n.heads;
  shape.head_size = n.head_size;
  scratch.d_o = arena.take<T>(n.tokens, n.attention());
  scratch.attention_work = arena.take<Accumulate<T>>(kernels::attention_workspace_elements(shape));
  return scratch;
}

template <class P>
View2<typename P::Compute> Block<P>::own_rows(View2<T> all) const {
  return axis_.cuts_tokens() ? rows_of(all, axis_.rows().offset, axis_.rows().extent) : all;
}

template <class P>
kernels::AttentionShape Block<P>::attention_shape(std::int64_t tokens) const {
  kernels::AttentionShape shape;
  shape.batch = tokens / model_.sequence;
  shape.sequence = model_.sequence;
  shape.heads = shape.key_value_heads = heads_.extent;
  shape.head_size = model_.head_size();
  shape.causal = true;
  shape.scale = 1 / std::sqrt(static_cast<double>(shape.head_size));
  return shape;
}

template <class P>
kernels::AttentionDropout Block<P>::attention_dropout(const MicroContext& c) const {
  return {c.dropout,
          RandomKey{c.seed, Purpose::attention_dropout, static_cast<std::uint32_t>(layer_), c.step},
          c.first_sample, heads_.offset, model_.heads};
}

namespace {
std::uint32_t attention_site(std::int64_t layer) {
  return static_cast<std::uint32_t>(1 + 2 * layer);
}
std::uint32_t feed_forward_site(std::int64_t layer) {
  return static_cast<std::uint32_t>(2 + 2 * layer);
}
}  // namespace

template <class P>
void Block<P>::forward(const Exec& exec, View2<T> out, const Saved& s, const Scratch& scratch,
                       const MicroContext& c) const {
  attend(exec, s, scratch, c);
  widen(exec, s, scratch);
  narrow(exec, out, s, scratch, c);
}

template <class P>
void Block<P>::forward_again(const Exec& exec, const Saved& s, const Scratch& scratch,
                             const MicroContext& c) const {
  if (recompute_ != Recompute::full) return;
  attend(exec, s, scratch, c);
  widen(exec, s, scratch);
}

template <class P>
void Block<P>::attend(const Exec& exec, const Saved& s, const Scratch& scratch,
                      const MicroContext& c) const {
  norm1_.forward(exec, s.y1, s.norm1, s.x);
  const View2<T> y = axis_.gather(exec, scratch.all, s.y1, "attention's input, forward");
  query_key_value_.forward(exec, s.qkv, y);
  kernels::attention_forward<T>(exec, s.o, s.logsumexp, s.qkv, attention_shape(extent(s.qkv, 0)),
                                attention_dropout(c));
  output_.forward(exec, axis_.partial(scratch.all, s.x1), s.o, axis_.rank());
  axis_.reduce(exec, s.x1, scratch.all, "attention's output, forward");
  kernels::residual_dropout_forward<T>(exec, s.x1, s.x, s.x1,
                                       c.dropout_site(attention_site(layer_), axis_.rows().offset));
}

template <class P>
void Block<P>::widen(const Exec& exec, const Saved& s, const Scratch& scratch) const {
  norm2_.forward(exec, s.y2, s.norm2, s.x1);
  const View2<T> y = axis_.gather(exec, scratch.all, s.y2, "feed-forward's input, forward");
  up_.forward(exec, s.h, y);
  kernels::gelu_forward<T>(exec, s.g, s.h);
}

template <class P>
void Block<P>::narrow(const Exec& exec, View2<T> out, const Saved& s, const Scratch& scratch,
                      const MicroContext& c) const {
  down_.forward(exec, axis_.partial(scratch.all, out), s.g, axis_.rank());
  axis_.reduce(exec, out, scratch.all, "feed-forward's output, forward");
  kernels::residual_dropout_forward<T>(
      exec, out, s.x1, out, c.dropout_site(feed_forward_site(layer_), axis_.rows().offset));
}

template <class P>
void Block<P>::backward_input(const Exec& exec, View2<T> dx, const Work& w, const Scratch& scratch,
                              const Saved& s, const MicroContext& c) const {
  const std::int64_t first_row = axis_.rows().offset;
  kernels::dropout_backward<T>(exec, own_rows(w.dz2), dx,
                               c.dropout_site(feed_forward_site(layer_), first_row));
  axis_.gather(exec, w.dz2, own_rows(w.dz2), "feed-forward's output, backward");
  down_.backward_input(exec, w.dh, w.dz2);
  kernels::gelu_backward<T>(exec, w.dh, w.dh, s.h);
  up_.backward_input(exec, axis_.partial(scratch.all, w.dy2), w.dh);
  axis_.reduce(exec, w.dy2, scratch.all, "feed-forward's input, backward");
  norm2_.backward_input(exec, dx, w.dy2, s.norm2, s.x1, true);

  kernels::dropout_backward<T>(exec, own_rows(w.dz1), dx,
                               c.dropout_site(attention_site(layer_), first_row));
  axis_.gather(exec, w.dz1, own_rows(w.dz1), "attention's output, backward");
  output_.backward_input(exec, scratch.d_o, w.dz1);
  kernels::attention_backward<T>(exec, w.dqkv, scratch.d_o, s.o, s.qkv, s.logsumexp,
                                 scratch.attention_work, attention_shape(extent(s.qkv, 0)),
                                 attention_dropout(c));
  query_key_value_.backward_input(exec, axis_.partial(scratch.all, w.dy1), w.dqkv);
  axis_.reduce(exec, w.dy1, scratch.all, "attention's input, backward");
  norm1_.backward_input(exec, dx, w.dy1, s.norm1, s.x, true);
}

template <class P>
void Block<P>::backward_weight(const Exec& exec, const Work& w, const Scratch& scratch,
                               const Saved& s) const {
  // Only this rank's rows of the products' inputs were kept: they are gathered again.
  const bool again = recompute_ == Recompute::selective;
  if (again) kernels::gelu_forward<T>(exec, s.g, s.h);
  down_.backward_weight(exec, w.dz2, s.g);
  down_.backward_bias(exec, own_rows(w.dz2));
  if (again) norm2_.forward(exec, s.y2, s.norm2, s.x1);
  up_.backward_weight(exec, w.dh,
                      axis_.gather(exec, scratch.all, s.y2, "feed-forward's input, again"));
  norm2_.backward_weight(exec, w.dy2, s.norm2, s.x1);
  output_.backward_weight(exec, w.dz1, s.o);
  output_.backward_bias(exec, own_rows(w.dz1));
  if (again) norm1_.forward(exec, s.y1, s.norm1, s.x);  // y1 and y2 lie in the same memory
  query_key_value_.backward_weight(
      exec, w.dqkv, axis_.gather(exec, scratch.all, s.y1, "attention's input, again"));
  norm1_.backward_weight(exec, w.dy1, s.norm1, s.x);
}

template <class P>
void Block<P>::decode(const Exec& exec, View2<T> x, View3<T> key_cache, View3<T> value_cache,
                      std::int64_t position, const Saved& s) const {
  kernels::AttentionShape shape = attention_shape(model_.sequence);
  shape.batch = extent(x, 0);
  norm1_.forward(exec, s.y1, s.norm1, x);
  query_key_value_.forward(exec, s.qkv, s.y1);
  kernels::cache_append<T>(exec, s.y2, key_cache, value_cache, s.qkv,
                           position);  // y2 holds the queries for a moment
  kernels::attention_decode<T>(exec, s.o, s.y2, key_cache, value_cache, position, shape);
  output_.forward(exec, s.x1, s.o, 0);
  kernels::accumulate<T>(exec, flat(x), flat<const T>(s.x1));
  norm2_.forward(exec, s.y2, s.norm2, x);
  up_.forward(exec, s.h, s.y2);
  kernels::gelu_forward<T>(exec, s.g, s.h);
  down_.forward(exec, s.x1, s.g, 0);
  kernels::accumulate<T>(exec, flat(x), flat<const T>(s.x1));
}

template class Block<Fp32>;
template class Block<Fp64>;

}  // namespace trireme::model
