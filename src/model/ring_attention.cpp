// Ring attention: the kernels of each step, and the messages that overlap with them.
#include <trireme/model/ring_attention.hpp>

#include <trireme/kernels/elementwise.hpp>

namespace trireme::model {

using kernels::AttentionRange;
using kernels::AttentionTokens;
using kernels::Handle;

template <class T>
RingAttention<T>::RingAttention(const ContextAxis& axis, const kernels::AttentionShape& shape,
                                std::int64_t sequence)
    : axis_(axis),
      ring_{sequence, axis.size(), shape.causal, shape.window},
      shape_(shape),
      tokens_(shape.sequence) {
  shape_.sequence = sequence;
  if (shape_.window >= sequence) shape_.window = 0;
  largest_ = shape.batch * axis.places_of(0).held * 2 * shape.key_value_heads * shape.head_size;
}

template <class T>
template <class F>
void RingAttention<T>::for_pairs(int step, View1<const std::int32_t> positions, const F& f) const {
  kernels::AttentionShape shape = shape_;
  shape.positions = positions;
  const std::int64_t theirs = axis_.places_of(owner(step)).held;
  for (const layout::ChunkPair& pair : ring_.pairs(axis_.rank(), step)) {
    const AttentionTokens queries{pair.queries.count, pair.query_row, tokens_, pair.queries.first};
    const AttentionTokens keys{pair.keys.count, pair.key_row, theirs, pair.keys.first};
    f(AttentionRange(shape, queries, keys, pair.same), pair.same);
    axis_.communicator().progress();
  }
}

template <class T>
template <class U>
View2<U> RingAttention<T>::block(View1<U> memory, int number, int owner) const {
  return View2<U>(memory.data() + number * largest_,
                  static_cast<std::size_t>(shape_.batch * axis_.places_of(owner).held),
                  static_cast<std::size_t>(2 * shape_.key_value_heads * shape_.head_size));
}

template <class T>
template <class U>
auto RingAttention<T>::exchange(const Handle& handle, View2<U> theirs, View2<U> mine,
                                int channel) const -> Exchange {
  grid::Communicator& ring = axis_.communicator();
  Exchange exchange;
  ring.begin_group();
  exchange.receive = ring.start_receive<U>(handle, flat(theirs), owner(1), channel);
  exchange.send = ring.start_send<U>(handle, flat(mine), owner(-1), channel);
  ring.end_group(handle);
  return exchange;
}

template <class T>
void RingAttention<T>::wait(Exchange& exchange, const char* what) const {
  axis_.communicator().wait(exchange.receive, what);
  axis_.communicator().wait(exchange.send, what);
}

template <class T>
void RingAttention<T>::forward(const Handle& handle, View2<T> o, View3<A> logsumexp,
                               View2<const T> qkv, const RingMemory<T>& memory,
                               View1<const std::int32_t> positions,
                               const kernels::AttentionDropout& dropout) const {
  if (shape_.heads == 0) return;
  const int steps = axis_.size();
  const auto keys = [&](int step) { return block(memory.values, step % 2, owner(step)); };
  const View1<A> wide(memory.sums.data(), is_narrow<T> ? o.extent(0) * o.extent(1) : 0);
  kernels::copy_columns<T>(handle, keys(0), qkv, shape_.heads * shape_.head_size);
  for (int step = 0; step < steps; ++step) {
    Exchange next;
    if (step + 1 < steps) next = exchange<T>(handle, keys(step + 1), keys(step), 0);
    for_pairs(step, positions, [&](const AttentionRange& part, bool first) {
      kernels::attention_part_forward<T>(handle, o, wide, logsumexp, qkv, keys(step), part, first,
                                         dropout);
    });
    if (step + 1 < steps) wait(next, "keys and values, forward");
  }
  if constexpr (is_narrow<T>) kernels::convert<T, A>(handle, flat(o), wide);
}

/// In step k, this rank computes its contributions to the gradients of the keys and values of
/// owner(k), and meanwhile receives the sum of the contributions of earlier ranks. It sends the new
/// sum to the next rank.
template <class T>
void RingAttention<T>::backward(const Handle& handle, View2<T> dqkv, View2<const T> grad,
                                View2<const T> o, View2<const T> qkv, View3<const A> logsumexp,
                                const RingMemory<T>& memory, View1<const std::int32_t> positions,
                                const kernels::AttentionDropout& dropout) const {
  if (shape_.heads == 0) return;
  const int steps = axis_.size();
  const std::int64_t queries = shape_.heads * shape_.head_size;
  const auto keys = [&](int step) { return block(memory.values, step % 2, owner(step)); };
  const auto sums = [&](int step) { return block(memory.sums, step % 2, owner(step)); };
  const auto arriving = [&](int step) { return block(memory.sums, 2, owner(step)); };
  kernels::AttentionShape held = shape_;
  held.sequence = tokens_;
  A* const rest = memory.sums.data() + 3 * largest_;
  const auto deltas = static_cast<std::size_t>(held.tokens() * held.heads);
  const View1<A> delta(rest, deltas);
  const View1<A> wide(rest + deltas, is_narrow<T> ? o.extent(0) * o.extent(1) : 0);
  kernels::attention_delta<T>(handle, delta, grad, o, held);
  kernels::copy_columns<T>(handle, keys(0), qkv, queries);
  Exchange gradients;
  for (int step = 0; step < steps; ++step) {
    Exchange next;
    if (step + 1 < steps) next = exchange<T>(handle, keys(step + 1), keys(step), 0);
    kernels::fill<A>(handle, flat(sums(step)), 0.0);
    for_pairs(step, positions, [&](const AttentionRange& part, bool first) {
      kernels::attention_part_backward<T>(handle, dqkv, wide, sums(step), grad, qkv, keys(step),
                                          logsumexp, delta, part, first, dropout);
    });
    if (step > 0) {
      wait(gradients, "gradients of keys and values");
      kernels::accumulate<A>(handle, flat(sums(step)), flat<const A>(arriving(step)));
    }
    gradients = exchange<A>(handle, arriving(step + 1), sums(step), 1);
    if (step + 1 < steps) wait(next, "keys and values, backward");
  }
  wait(gradients, "gradients of keys and values");
  if constexpr (is_narrow<T>)
    kernels::place_columns<T>(handle, dqkv, View2<const A>(wide.data(), o.extent(0), o.extent(1)),
                              0);
  kernels::place_columns<T>(handle, dqkv, View2<const A>(arriving(steps)), queries);
}

template class RingAttention<float>;
template class RingAttention<double>;
template class RingAttention<Bf16>;
template class RingAttention<Fp16>;

}  // namespace trireme::model
