#include <trireme/model/next_token_head.hpp>

#include <trireme/architecture/objective.hpp>

namespace trireme::model {

template <class P>
NextTokenHead<P>::NextTokenHead(const Parameters<P>& parameters, const deck::ModelConfig& m,
                                const TensorAxis& axis, architecture::HeadGradient gradient)
    : axis_(axis),
      gradient_(gradient),
      sequence_(axis.context().held(m.sequence)),
      targets_(architecture::objective_of(m).field("targets")),
      logits_(parameters, m, axis, gradient) {}

template <class P>
void NextTokenHead<P>::forward(const Handle& handle, View1<double> losses, View2<T> dy,
                               View2<T> all, const HeadTensors<P>& s, BatchFields fields,
                               const MicroContext& c) const {
  const View2<T> y = axis_.gather(handle, all, dy, "logits, forward");
  logits_.forward(handle, losses, y, s.logits, fields[targets_], c);
  if (gradient_ == architecture::HeadGradient::with_losses)
    axis_.reduce(handle, dy, all, "logits, backward");
}

template <class P>
void NextTokenHead<P>::backward(const Handle& handle, View2<T> dy, View2<T> all,
                                const HeadTensors<P>& s, BatchFields fields,
                                const MicroContext& c) const {
  const View2<T> y = axis_.gather(handle, all, dy, "logits, backward");
  logits_.backward(handle, y, s.logits, fields[targets_], c);
  axis_.reduce(handle, dy, all, "logits, backward");
}

template <class P>
void NextTokenHead<P>::evaluate(const Handle& handle, View1<double> losses, View2<T> y,
                                View2<T> all, const HeadTensors<P>& s, BatchFields fields,
                                std::int64_t samples, View2<double> scores) const {
  const View2<T> whole = axis_.gather(handle, all, y, "logits, forward");
  const std::int64_t tokens = samples * sequence_;
  const View1<const std::int32_t> targets(fields[targets_].data(),
                                          static_cast<std::size_t>(tokens));
  logits_.evaluate(handle, losses, rows_of(whole, 0, tokens), s.logits, targets, scores);
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
