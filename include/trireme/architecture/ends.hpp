#pragma once

#include <trireme/architecture/array_spec.hpp>
#include <trireme/deck/config.hpp>

#include <vector>

namespace trireme::architecture {

/// Tables of tokens, and of positions and segments where the model has them.
std::vector<ArraySpec> embedding_arrays(const deck::ModelConfig& model);
/// Final norm, output matrix unless it is tied to the embedding, and the heads of masked tokens and
/// of pairs (Devlin et al. 2019, section 3.1).
std::vector<ArraySpec> head_arrays(const deck::ModelConfig& model);

}  // namespace trireme::architecture
