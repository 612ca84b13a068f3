#include <trireme/model/head.hpp>

namespace trireme::model {

template <class P>
Head<P>::Head(const Parameters<P>& parameters, const deck::ModelConfig& m, const TensorAxis& axis,
              architecture::HeadGradient gradient)
    : gradient_(gradient),
      description_(architecture::describe_head(m, gradient)),
      norm_(make_norm(parameters, "final_norm", m)),
      training_(architecture::shares_logits(gradient)
                    ? nullptr
                    : make_training_head(parameters, m, axis, gradient)) {}

template <class P>
auto Head<P>::take_saved(Arena& arena, const architecture::LocalSizes& n) const -> Saved {
  using A = Accumulate<T>;
  const TensorMemory<P> m(arena, description_, architecture::Home::slot, n, scratch_);
  return {m.matrix("x"),
          m.matrix("y"),
          {m.template list<A>("final_norm.mean"), m.template list<A>("final_norm.inverse")},
          head_tensors(m)};
}

template <class P>
void Head<P>::normalise(const Handle& handle, View2<T> y, const NormSaved<P>& saved,
                        View2<const T> x) const {
  std::visit([&](const auto& norm) { norm.forward(handle, y, saved, x); }, norm_);
}

template <class P>
void Head<P>::forward(const Handle& handle, View1<double> losses, const Saved& s, View2<T> all,
                      BatchFields fields, const MicroContext& c) const {
  normalise(handle, s.dy, s.norm, s.x);
  if (training_) training_->forward(handle, losses, s.dy, all, s.tensors, fields, c);
}

template <class P>
void Head<P>::backward_losses(const Handle& handle, const Saved& s, View2<T> all,
                              BatchFields fields, const MicroContext& c) const {
  if (training_ && gradient_ != architecture::HeadGradient::with_losses)
    training_->backward(handle, s.dy, all, s.tensors, fields, c);
}

template <class P>
void Head<P>::evaluate(const Handle& handle, View1<double> losses, const Saved& s, View2<T> all,
                       BatchFields fields, std::int64_t samples, View2<double> scores) const {
  normalise(handle, s.dy, s.norm, s.x);
  if (training_) training_->evaluate(handle, losses, s.dy, all, s.tensors, fields, samples, scores);
}

template <class P>
void Head<P>::backward_input(const Handle& handle, View2<T> dx, const Saved& s) const {
  std::visit([&](const auto& norm) { norm.backward_input(handle, dx, s.dy, s.norm, s.x, false); },
             norm_);
}

template <class P>
void Head<P>::backward_weight(const Handle& handle, const Saved& s) const {
  std::visit([&](const auto& norm) { norm.backward_weight(handle, s.dy, s.norm, s.x); }, norm_);
}

template <class P>
void Head<P>::logits(const Handle& handle, View2<Accumulate<T>> logits, View2<const T> x,
                     const Saved& s) const {
  normalise(handle, s.dy, s.norm, x);
  training_->logits(handle, logits, s.dy);
}

template class Head<Fp32>;
template class Head<Fp64>;
template class Head<MixedBf16>;
template class Head<MixedFp16>;

}  // namespace trireme::model
