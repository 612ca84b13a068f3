#include <trireme/model/training_head.hpp>

#include <trireme/model/masked_head.hpp>
#include <trireme/model/next_token_head.hpp>

namespace trireme::model {

template <class P>
HeadTensors<P> head_tensors(const TensorMemory<P>& m) {
  using A = Accumulate<typename P::Compute>;
  return {
      m.matrix("picked"),
      m.matrix("dense"),
      m.matrix("activated"),
      m.matrix("normed"),
      {m.template list<A>("masked_head.norm.mean"), m.template list<A>("masked_head.norm.inverse")},
      m.matrix("pooled"),
      m.matrix("dpooled"),
      m.template matrix<A>("scores"),
      m.matrix("dscores"),
      m.template list<double>("pair_losses"),
      m.template matrix<double>("pair_statistics"),
      m.template matrix<double>("pair_merged"),
      Logits<P>::scratch_in(m)};
}

template <class P>
std::unique_ptr<TrainingHead<P>> make_training_head(const Parameters<P>& parameters,
                                                    const deck::ModelConfig& m,
                                                    const TensorAxis& axis,
                                                    architecture::HeadGradient gradient) {
  switch (m.objective) {
    case Objective::next_token:
      return std::make_unique<NextTokenHead<P>>(parameters, m, axis, gradient);
    case Objective::masked_token:
      return std::make_unique<MaskedHead<P>>(parameters, m, axis, gradient);
  }
  return nullptr;
}

#define TRIREME_INSTANTIATE(P)                                           \
  template HeadTensors<P> head_tensors(const TensorMemory<P>&);          \
  template std::unique_ptr<TrainingHead<P>> make_training_head(          \
      const Parameters<P>&, const deck::ModelConfig&, const TensorAxis&, \
      architecture::HeadGradient)
TRIREME_INSTANTIATE(Fp32);
TRIREME_INSTANTIATE(Fp64);
TRIREME_INSTANTIATE(MixedBf16);
TRIREME_INSTANTIATE(MixedFp16);
#undef TRIREME_INSTANTIATE

}  // namespace trireme::model
