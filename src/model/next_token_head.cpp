#include <trireme/architecture/objective.hpp>
#include <trireme/model/next_token_head.hpp>

namespace trireme::model {

template <class P>
NextTokenHead<P>::NextTokenHead(const Parameters<P>& parameters, const deck::ModelConfig& m,
                                const TensorAxis& axis)
    : axis_(axis),
      sequence_(axis.context().held(m.sequence)),
      targets_(architecture::objective_of(m).field("targets")),
      logits_(parameters, m, axis) {}

template <class P>
void NextTokenHead<P>::take_scratch(const TensorMemory<P>& memory) {
  scratch_ = Logits<P>::scratch_in(memory);
}

template <class P>
void NextTokenHead<P>::forward(const Handle& handle, View1<double> losses, View2<T> dy,
                               View2<T> all, BatchFields fields, const MicroContext& c) const {
  const View2<T> y = axis_.gather(handle, all, dy, "logits, forward");
  logits_.train(handle, losses, y, scratch_, fields[targets_], c);
  axis_.reduce(handle, dy, all, "logits, backward");
}

template <class P>
void NextTokenHead<P>::evaluate(const Handle& handle, View1<double> losses, View2<T> y,
                                View2<T> all, BatchFields fields, std::int64_t samples) const {
  const View2<T> whole = axis_.gather(handle, all, y, "logits, forward");
  const std::int64_t tokens = samples * sequence_;
  const View1<const std::int32_t> targets(fields[targets_].data(),
                                          static_cast<std::size_t>(tokens));
  logits_.evaluate(handle, losses, rows_of(whole, 0, tokens), scratch_, targets);
}

template <class P>
void NextTokenHead<P>::logits(const Handle& handle, View2<Accumulate<T>> logits,
                              View2<const T> y) const {
  logits_.compute(handle, logits, y);
}

template class NextTokenHead<Fp32>;
template class NextTokenHead<Fp64>;
template class NextTokenHead<MixedBf16>;
template class NextTokenHead<MixedFp16>;

}  // namespace trireme::model
