#pragma once

#include <trireme/deck/config.hpp>
#include <trireme/deck/table.hpp>

#include <string_view>

namespace trireme::deck {

/// The effect of another [model] sequence than that of a checkpoint, and why it is more than other
/// results (Effect::numbers).
struct SequenceEffect {
  Effect effect = Effect::numbers;
  std::string_view reason = "";
};

SequenceEffect effect_of_sequence(const ModelConfig& stored, const ModelConfig& current);

}  // namespace trireme::deck
