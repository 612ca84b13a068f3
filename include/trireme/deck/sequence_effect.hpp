#pragma once

#include <trireme/deck/config.hpp>
#include <trireme/deck/table.hpp>

#include <string_view>

namespace trireme::deck {

/// Effect of a [model] sequence that differs from the checkpoint's, with the reason if the effect
/// is stronger than Effect::numbers.
struct SequenceEffect {
  Effect effect = Effect::numbers;
  std::string_view reason = "";
};

SequenceEffect effect_of_sequence(const ModelConfig& stored, const ModelConfig& current);

}  // namespace trireme::deck
