#include <trireme/model/head.hpp>

namespace trireme::model {
namespace {

template <class P>
std::variant<LayerNorm<P>, RmsNorm<P>> final_norm(const Parameters<P>& parameters,
                                                  const deck::ModelConfig& m) {
  if (m.norm == NormKind::rms) return RmsNorm<P>(parameters, "final_norm", m);
  return LayerNorm<P>(parameters, "final_norm", m);
}

}  // namespace

template <class P>
Head<P>::Head(const Parameters<P>& parameters, const deck::ModelConfig& m, const TensorAxis& axis)
    : axis_(axis),
      targets_(m.targets()),
      norm_(final_norm(parameters, m)),
      logits_(parameters, m, axis) {
  if (m.predicts_masked_tokens()) masked_.emplace(parameters, m, axis);
}

template <class P>
auto Head<P>::cut_saved(Arena& arena, const architecture::LocalSizes& n) -> Saved {
  Saved s;
  s.x = arena.take<T>(n.rows, n.hidden);
  s.dy = arena.take<T>(n.rows, n.hidden);
  s.norm = NormSaved<P>::cut(arena, n);
  return s;
}

template <class P>
auto Head<P>::cut_scratch(Arena& arena, const architecture::LocalSizes& n, int tensor_size)
    -> Scratch {
  Scratch s;
  s.logits = Logits<P>::cut_scratch(arena, n.logit_block, n.vocabulary, tensor_size);
  if (n.masked) s.masked = MaskedHead<P>::cut_scratch(arena, n);
  return s;
}

template <class P>
void Head<P>::normalise(const Exec& exec, View2<T> y, const NormSaved<P>& saved,
                        View2<const T> x) const {
  std::visit([&](const auto& norm) { norm.forward(exec, y, saved, x); }, norm_);
}

template <class P>
void Head<P>::forward(const Exec& exec, View1<double> loss, const Saved& s, View2<T> all,
                      const Scratch& scratch, const Targets& targets, const MicroContext& c) const {
  normalise(exec, s.dy, s.norm, s.x);
  if (masked_) {
    masked_->forward(exec, loss, s.dy, logits_, scratch.logits, scratch.masked, targets, c);
    return;
  }
  const View2<T> y = axis_.gather(exec, all, s.dy, "logits, forward");
  logits_.train(exec, View1<double>(loss.data(), 1), y, scratch.logits, targets.ids, c);
  axis_.reduce(exec, s.dy, all, "logits, backward");
}

template <class P>
void Head<P>::evaluate(const Exec& exec, View1<double> loss, const Saved& s, View2<T> all,
                       const Scratch& scratch, const Targets& targets, std::int64_t samples) const {
  normalise(exec, s.dy, s.norm, s.x);
  if (masked_) {
    masked_->evaluate(exec, loss, s.dy, logits_, scratch.logits, scratch.masked, targets, samples);
    return;
  }
  const View2<T> y = axis_.gather(exec, all, s.dy, "logits, forward");
  const std::int64_t tokens = samples * targets_;
  logits_.evaluate(exec, View1<double>(loss.data(), 1), rows_of(y, 0, tokens), scratch.logits,
                   View1<const std::int32_t>(targets.ids.data(), static_cast<std::size_t>(tokens)));
}

template <class P>
void Head<P>::backward_input(const Exec& exec, View2<T> dx, const Saved& s) const {
  std::visit([&](const auto& norm) { norm.backward_input(exec, dx, s.dy, s.norm, s.x, false); },
             norm_);
}

template <class P>
void Head<P>::backward_weight(const Exec& exec, const Saved& s) const {
  std::visit([&](const auto& norm) { norm.backward_weight(exec, s.dy, s.norm, s.x); }, norm_);
}

template <class P>
void Head<P>::logits(const Exec& exec, View2<Accumulate<T>> logits, View2<const T> x,
                     const Saved& s) const {
  normalise(exec, s.dy, s.norm, x);
  logits_.compute(exec, logits, s.dy);
}

template class Head<Fp32>;
template class Head<Fp64>;
template class Head<MixedBf16>;
template class Head<MixedFp16>;

}  // namespace trireme::model
