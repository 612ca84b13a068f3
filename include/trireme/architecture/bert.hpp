#pragma once

#include <trireme/architecture/architecture.hpp>

#include <vector>

namespace trireme::architecture {

/// Encoder with learned positions, segments, biases, LayerNorm behind each addition, a head for
/// masked tokens and one for pairs of segments (Devlin et al. 2019, arXiv 1810.04805). A norm
/// belongs to what comes behind it, as in gpt: `layers.0.attention_norm` is that of the embeddings,
/// `layers.N.attention_norm` the one behind layer N − 1, `final_norm` the one behind the last.
std::vector<ArraySpec> bert_arrays(const deck::ModelConfig& model);

}  // namespace trireme::architecture
