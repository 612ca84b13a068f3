#pragma once

#include <trireme/architecture/architecture.hpp>

#include <vector>

namespace trireme::architecture {

/// Pre-RMSNorm transformer with rotary positions, SwiGLU, grouped-query attention and no biases
/// (Touvron et al. 2023, arXiv 2302.13971 and 2307.09288).
std::vector<ArraySpec> llama_arrays(const deck::ModelConfig& model);

}  // namespace trireme::architecture
