#pragma once

#include <trireme/architecture/architecture.hpp>

#include <vector>

namespace trireme::architecture {

/// Pre-LayerNorm transformer with learned positions and biases (Radford et al. 2019).
std::vector<ArraySpec> gpt_arrays(const deck::ModelConfig& model);

}  // namespace trireme::architecture
