#include <trireme/model/masked_head.hpp>
#include <trireme/model/next_token_head.hpp>
#include <trireme/model/training_head.hpp>

namespace trireme::model {

template <class P>
std::unique_ptr<TrainingHead<P>> make_training_head(const Parameters<P>& parameters,
                                                    const deck::ModelConfig& m,
                                                    const TensorAxis& axis) {
  switch (m.objective) {
    case Objective::next_token:
      return std::make_unique<NextTokenHead<P>>(parameters, m, axis);
    case Objective::masked_token:
      return std::make_unique<MaskedHead<P>>(parameters, m, axis);
  }
  return nullptr;
}

#define TRIREME_INSTANTIATE(P)                                  \
  template std::unique_ptr<TrainingHead<P>> make_training_head( \
      const Parameters<P>&, const deck::ModelConfig&, const TensorAxis&)
TRIREME_INSTANTIATE(Fp32);
TRIREME_INSTANTIATE(Fp64);
TRIREME_INSTANTIATE(MixedBf16);
TRIREME_INSTANTIATE(MixedFp16);
#undef TRIREME_INSTANTIATE

}  // namespace trireme::model
