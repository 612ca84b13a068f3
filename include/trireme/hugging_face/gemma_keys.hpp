#pragma once

#include <trireme/hugging_face/config_key.hpp>

#include <vector>

namespace trireme::hugging_face {

/// Keys of GemmaForCausalLM that LlamaForCausalLM does not have.
void add_gemma_keys(std::vector<ConfigKey>& keys);
/// Those of Gemma2ForCausalLM: soft caps, and windows in every other layer unless layer_types says
/// otherwise.
void add_gemma2_keys(std::vector<ConfigKey>& keys);
/// Those of Gemma3ForCausalLM: windows in all layers but every sixth one.
void add_gemma3_keys(std::vector<ConfigKey>& keys);

}  // namespace trireme::hugging_face
