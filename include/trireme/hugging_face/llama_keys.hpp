#pragma once

#include <trireme/hugging_face/complaints.hpp>
#include <trireme/hugging_face/config_key.hpp>

#include <vector>

namespace trireme::hugging_face {

/// Keys of rotary positions: rope_parameters, or rope_scaling and rope_theta as in files from
/// before 2025. They follow max_position_embeddings, to which some types of scaling refer.
void add_rotary_keys(std::vector<ConfigKey>& keys);

/// Keys of rotary positions of models whose layers with a window have their own, without scaling:
/// rope_parameters has an object for each kind of layer.
void add_rotary_keys_of_two_kinds(std::vector<ConfigKey>& keys);

/// Complains about members of rope_parameters and rope_scaling that are missing, unknown or
/// contradict one another.
void check_rotary(const json& file, const deck::ModelConfig& m, Complaints& complaints);

/// Keys of GemmaForCausalLM that LlamaForCausalLM does not have.
void add_gemma_keys(std::vector<ConfigKey>& keys);
/// Further keys of Gemma2ForCausalLM: soft caps, and windows in every other layer unless layer_types says
/// otherwise.
void add_gemma2_keys(std::vector<ConfigKey>& keys);
/// Further keys of Gemma3ForCausalLM: windows in all layers except every sixth.
void add_gemma3_keys(std::vector<ConfigKey>& keys);

}  // namespace trireme::hugging_face
