#include <trireme/model/bert_layer.hpp>
#include <trireme/model/gpt_layer.hpp>
#include <trireme/model/layer.hpp>
#include <trireme/model/llama_layer.hpp>

#include <algorithm>
#include <cmath>

namespace trireme::model {

template <class P>
Layer<P>::Layer(const Parameters<P>& parameters, const deck::ModelConfig& m, const TensorAxis& axis,
                std::int64_t layer, Recompute recompute)
    : model_(m),
      axis_(axis),
      heads_(parameters.shard().part(m.heads)),
      key_value_heads_(
          parameters.shard().groups(m.heads / m.heads_per_group(), m.heads_per_group()).extent),
      layer_(layer),
      recompute_(recompute) {}

template <class P>
auto Layer<P>::cut_shared(Arena& arena, const architecture::LocalSizes& n, Recompute recompute)
    -> Saved {
  Saved s;
  if (recompute == Recompute::none) return s;
  s.y1 = s.y2 = arena.take<T>(n.rows, n.hidden);
  s.g = arena.take<T>(n.tokens, n.feed_forward);
  if (recompute == Recompute::selective) return s;
  s.y2 = arena.take<T>(n.rows, n.hidden);
  s.qkv = arena.take<T>(n.tokens, n.query_key_value());
  s.o = arena.take<T>(n.tokens, n.attention());
  s.x1 = arena.take<T>(n.rows, n.hidden);
  s.h = arena.take<T>(n.tokens, n.inner);
  s.logsumexp = arena.take<Accumulate<T>>(n.micro, n.heads, n.sequence);
  s.norm1 = NormSaved<P>::cut(arena, n);
  s.norm2 = NormSaved<P>::cut(arena, n);
  return s;
}

template <class P>
auto Layer<P>::cut_saved(Arena& arena, const architecture::LocalSizes& n, Recompute recompute,
                         const Saved& shared) -> Saved {
  Saved s = shared;
  s.x = arena.take<T>(n.rows, n.hidden);
  if (recompute == Recompute::full) return s;
  s.qkv = arena.take<T>(n.tokens, n.query_key_value());
  s.o = arena.take<T>(n.tokens, n.attention());
  s.x1 = arena.take<T>(n.rows, n.hidden);
  s.h = arena.take<T>(n.tokens, n.inner);
  s.logsumexp = arena.take<Accumulate<T>>(n.micro, n.heads, n.sequence);
  s.norm1 = NormSaved<P>::cut(arena, n);
  s.norm2 = NormSaved<P>::cut(arena, n);
  if (recompute == Recompute::selective) return s;
  s.y1 = arena.take<T>(n.rows, n.hidden);
  s.y2 = arena.take<T>(n.rows, n.hidden);
  s.g = arena.take<T>(n.tokens, n.feed_forward);
  return s;
}

template <class P>
auto Layer<P>::cut_work(Arena& arena, const architecture::LocalSizes& n) -> Work {
  Work w;
  w.dz2 = arena.take<T>(n.tokens, n.hidden);
  w.dh = arena.take<T>(n.tokens, n.inner);
  w.dy2 = arena.take<T>(n.rows, n.hidden);
  w.dz1 = arena.take<T>(n.tokens, n.hidden);
  w.dqkv = arena.take<T>(n.tokens, n.query_key_value());
  w.dy1 = arena.take<T>(n.rows, n.hidden);
  return w;
}

template <class P>
auto Layer<P>::cut_scratch(Arena& arena, const architecture::LocalSizes& n, bool training)
    -> Scratch {
  Scratch scratch;
  if (n.cuts_tokens) scratch.all = arena.take<T>(n.tokens, n.hidden);
  if (!training) return scratch;
  kernels::AttentionShape shape;
  shape.batch = n.micro;
  shape.sequence = n.sequence;
  shape.heads = n.heads;
  shape.key_value_heads = n.key_value_heads;
  shape.head_size = n.head_size;
  shape.group = n.group;
  shape.heads_before = n.heads_before;
  const auto size = [](std::int64_t extent) { return static_cast<std::size_t>(extent); };
  const std::int64_t columns = n.gated() ? std::max(n.attention(), n.feed_forward) : n.attention();
  const View1<T> either = arena.take<T>(n.tokens * columns);
  scratch.d_o = View2<T>(either.data(), size(n.tokens), size(n.attention()));
  if (n.gated()) scratch.dg = View2<T>(either.data(), size(n.tokens), size(n.feed_forward));
  scratch.attention_work =
      arena.take<Accumulate<T>>(kernels::attention_workspace_elements<T>(shape));
  return scratch;
}

template <class P>
View2<typename P::Compute> Layer<P>::own_rows(View2<T> all) const {
  return axis_.cuts_tokens() ? rows_of(all, axis_.rows().offset, axis_.rows().extent) : all;
}

template <class P>
kernels::AttentionShape Layer<P>::attention_shape(std::int64_t tokens) const {
  kernels::AttentionShape shape;
  shape.batch = tokens / model_.sequence;
  shape.sequence = model_.sequence;
  shape.heads = heads_.extent;
  shape.key_value_heads = key_value_heads_;
  shape.group = model_.heads_per_group();
  shape.heads_before = heads_.offset % shape.group;
  shape.head_size = model_.head_size();
  shape.causal = model_.causal();
  shape.scale = 1 / std::sqrt(static_cast<double>(shape.head_size));
  return shape;
}

template <class P>
kernels::AttentionDropout Layer<P>::attention_dropout(const MicroContext& c) const {
  return {c.dropout,
          RandomKey{c.seed, Purpose::attention_dropout, static_cast<std::uint32_t>(layer_), c.step},
          c.first_sample, heads_.offset, model_.heads};
}

template <class P>
kernels::Dropout Layer<P>::attention_site(const MicroContext& c) const {
  return c.dropout_site(static_cast<std::uint32_t>(1 + 2 * layer_), axis_.rows().offset);
}

template <class P>
kernels::Dropout Layer<P>::feed_forward_site(const MicroContext& c) const {
  return c.dropout_site(static_cast<std::uint32_t>(2 + 2 * layer_), axis_.rows().offset);
}

template <class P>
std::unique_ptr<Layer<P>> make_layer(const Parameters<P>& parameters, const deck::ModelConfig& m,
                                     const TensorAxis& axis, std::int64_t layer,
                                     Recompute recompute) {
  if (m.norm == NormKind::rms)
    return std::make_unique<LlamaLayer<P>>(parameters, m, axis, layer, recompute);
  if (m.norm_placement == NormPlacement::post)
    return std::make_unique<BertLayer<P>>(parameters, m, axis, layer, recompute);
  return std::make_unique<GptLayer<P>>(parameters, m, axis, layer, recompute);
}

#define TRIREME_INSTANTIATE(P)                                                                     \
  template class Layer<P>;                                                                         \
  template std::unique_ptr<Layer<P>> make_layer<P>(const Parameters<P>&, const deck::ModelConfig&, \
                                                   const TensorAxis&, std::int64_t, Recompute);
TRIREME_INSTANTIATE(Fp32)
TRIREME_INSTANTIATE(Fp64)
TRIREME_INSTANTIATE(MixedBf16)
TRIREME_INSTANTIATE(MixedFp16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::model
