#include <trireme/kernels/cache.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/model/block.hpp>

#include <cmath>

namespace trireme::model {
namespace {

std::string array(std::int64_t layer, const char* name) {
  return text("layers.", layer, ".", name);
}

template <class T>
View1<T> flat(View2<T> x) {
  return View1<T>(x.data(), x.extent(0) * x.extent(1));
}

}  // namespace

template <class P>
Block<P>::Block(const Parameters<P>& parameters, const deck::ModelConfig& m, std::int64_t layer)
    : model_(m),
      layer_(layer),
      norm1_(parameters, array(layer, "attention_norm"), m.hidden),
      query_key_value_(parameters, array(layer, "attention.query"),
                       array(layer, "attention.query_bias"), 3 * m.hidden, m.hidden),
      output_(parameters, array(layer, "attention.output"), array(layer, "attention.output_bias"),
              m.hidden, m.hidden),
      norm2_(parameters, array(layer, "feed_forward_norm"), m.hidden),
      up_(parameters, array(layer, "feed_forward.up"), array(layer, "feed_forward.up_bias"),
          m.feed_forward, m.hidden),
      down_(parameters, array(layer, "feed_forward.down"), array(layer, "feed_forward.down_bias"),
            m.hidden, m.feed_forward) {}

template <class P>
auto Block<P>::cut_saved(Arena& arena, const deck::ModelConfig& m, std::int64_t micro) -> Saved {
  const std::int64_t T_ = micro * m.sequence;
  Saved s;
  s.x = arena.take<T>(T_, m.hidden);
  s.y1 = arena.take<T>(T_, m.hidden);
  s.qkv = arena.take<T>(T_, 3 * m.hidden);
  s.o = arena.take<T>(T_, m.hidden);
  s.x1 = arena.take<T>(T_, m.hidden);
  s.y2 = arena.take<T>(T_, m.hidden);
  s.h = arena.take<T>(T_, m.feed_forward);
  s.g = arena.take<T>(T_, m.feed_forward);
  s.logsumexp = arena.take<Accumulate<T>>(micro, m.heads, m.sequence);
  s.norm1 = Norm<P>::Saved::cut(arena, T_);
  s.norm2 = Norm<P>::Saved::cut(arena, T_);
  return s;
}

template <class P>
auto Block<P>::cut_work(Arena& arena, const deck::ModelConfig& m, std::int64_t micro) -> Work {
  const std::int64_t T_ = micro * m.sequence;
  Work w;
  w.dz2 = arena.take<T>(T_, m.hidden);
  w.dh = arena.take<T>(T_, m.feed_forward);
  w.dy2 = arena.take<T>(T_, m.hidden);
  w.dz1 = arena.take<T>(T_, m.hidden);
  w.dqkv = arena.take<T>(T_, 3 * m.hidden);
  w.dy1 = arena.take<T>(T_, m.hidden);
  return w;
}

template <class P>
auto Block<P>::cut_scratch(Arena& arena, const deck::ModelConfig& m, std::int64_t micro)
    -> Scratch {
  kernels::AttentionShape shape;
  shape.batch = micro;
  shape.sequence = m.sequence;
  shape.heads = shape.key_value_heads = m.heads;
  shape.head_size = m.head_size();
  auto d_o = arena.take<T>(micro * m.sequence, m.hidden);
  return {d_o, arena.take<Accumulate<T>>(kernels::attention_workspace_elements(shape))};
}

template <class P>
kernels::AttentionShape Block<P>::attention_shape(std::int64_t tokens) const {
  kernels::AttentionShape shape;
  shape.batch = tokens / model_.sequence;
  shape.sequence = model_.sequence;
  shape.heads = shape.key_value_heads = model_.heads;
  shape.head_size = model_.head_size();
  shape.causal = true;
  shape.scale = 1 / std::sqrt(static_cast<double>(shape.head_size));
  return shape;
}

template <class P>
kernels::AttentionDropout Block<P>::attention_dropout(const MicroContext& c) const {
  return {c.dropout,
          RandomKey{c.seed, Purpose::attention_dropout, static_cast<std::uint32_t>(layer_), c.step},
          c.first_sample};
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
void Block<P>::forward(const Exec& exec, View2<T> out, const Saved& s,
                       const MicroContext& c) const {
  const kernels::AttentionShape shape = attention_shape(extent(s.x, 0));
  norm1_.forward(exec, s.y1, s.norm1, s.x);
  query_key_value_.forward(exec, s.qkv, s.y1);
  kernels::attention_forward<T>(exec, s.o, s.logsumexp, s.qkv, shape, attention_dropout(c));
  output_.forward(exec, s.x1, s.o);
  kernels::residual_dropout_forward<T>(exec, s.x1, s.x, s.x1,
                                       c.dropout_site(attention_site(layer_)));

  norm2_.forward(exec, s.y2, s.norm2, s.x1);
  up_.forward(exec, s.h, s.y2);
  kernels::gelu_forward<T>(exec, s.g, s.h);
  down_.forward(exec, out, s.g);
  kernels::residual_dropout_forward<T>(exec, out, s.x1, out,
                                       c.dropout_site(feed_forward_site(layer_)));
}

template <class P>
void Block<P>::backward_input(const Exec& exec, View2<T> dx, const Work& w, const Scratch& scratch,
                              const Saved& s, const MicroContext& c) const {
  const kernels::AttentionShape shape = attention_shape(extent(s.x, 0));
  kernels::dropout_backward<T>(exec, w.dz2, dx, c.dropout_site(feed_forward_site(layer_)));
  down_.backward_input(exec, w.dh, w.dz2);
  kernels::gelu_backward<T>(exec, w.dh, w.dh, s.h);
  up_.backward_input(exec, w.dy2, w.dh);
  norm2_.backward_input(exec, dx, w.dy2, s.norm2, s.x1, true);

  kernels::dropout_backward<T>(exec, w.dz1, dx, c.dropout_site(attention_site(layer_)));
  output_.backward_input(exec, scratch.d_o, w.dz1);
  kernels::attention_backward<T>(exec, w.dqkv, scratch.d_o, s.o, s.qkv, s.logsumexp,
                                 scratch.attention_work, shape, attention_dropout(c));
  query_key_value_.backward_input(exec, w.dy1, w.dqkv);
  norm1_.backward_input(exec, dx, w.dy1, s.norm1, s.x, true);
}

template <class P>
void Block<P>::backward_weight(const Exec& exec, const Work& w, const Saved& s) const {
  down_.backward_weight(exec, w.dz2, s.g);
  up_.backward_weight(exec, w.dh, s.y2);
  norm2_.backward_weight(exec, w.dy2, s.norm2, s.x1);
  output_.backward_weight(exec, w.dz1, s.o);
  query_key_value_.backward_weight(exec, w.dqkv, s.y1);
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
  output_.forward(exec, s.x1, s.o);
  kernels::accumulate<T>(exec, flat(x), flat<const T>(s.x1));
  norm2_.forward(exec, s.y2, s.norm2, x);
  up_.forward(exec, s.h, s.y2);
  kernels::gelu_forward<T>(exec, s.g, s.h);
  down_.forward(exec, s.x1, s.g);
  kernels::accumulate<T>(exec, flat(x), flat<const T>(s.x1));
}

template class Block<Fp32>;
template class Block<Fp64>;

}  // namespace trireme::model
