#pragma once

#include <trireme/deck/config.hpp>
#include <trireme/kernels/rotary.hpp>

namespace trireme::model {

/// Sets head size, theta and scaling of a layer for samples of model.sequence tokens, with the
/// formulas of transformers' rope types.
void set_frequencies(kernels::Rotary& rotary, const deck::ModelConfig& model, std::int64_t layer);

}  // namespace trireme::model
