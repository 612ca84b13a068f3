#include <trireme/deck/sequence_effect.hpp>

#include <algorithm>

namespace trireme::deck {

SequenceEffect effect_of_sequence(const ModelConfig& stored, const ModelConfig& current) {
  if (current.positions == Positions::learned)
    return {Effect::model, "learned positions have a row for each token of a sample"};
  const std::int64_t original = current.rope_original_sequence;
  if (current.rope_scaling == RotaryScalingKind::dynamic &&
      std::max(stored.sequence, original) != std::max(current.sequence, original))
    return {Effect::function, "rope_scaling = \"dynamic\" computes the rotary positions from it"};
  return {};
}

}  // namespace trireme::deck
