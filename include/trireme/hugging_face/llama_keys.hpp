#pragma once

#include <trireme/hugging_face/complaints.hpp>
#include <trireme/hugging_face/config_key.hpp>

#include <vector>

/// Keys of config.json that files of Llama and of the families that follow it have besides the
/// general keys.
namespace trireme::hugging_face {

/// Adds keys of rotary positions: rope_parameters, or rope_scaling and rope_theta as in files from
/// before 2025. They must follow max_position_embeddings, to which some types of scaling refer.
void add_rotary_keys(std::vector<ConfigKey>& keys);

/// Adds keys of rotary positions, without scaling, for models whose layers with a window have
/// separate positions: rope_parameters has an object for each kind of layer.
void add_rotary_keys_of_two_kinds(std::vector<ConfigKey>& keys);

/// Reports members of rope_parameters and rope_scaling that are missing, unknown or contradictory.
void check_rotary(const json& file, const deck::ModelConfig& m, Complaints& complaints);

/// Adds keys of GemmaForCausalLM that LlamaForCausalLM does not have.
void add_gemma_keys(std::vector<ConfigKey>& keys);
/// Adds further keys of Gemma2ForCausalLM: soft caps, and windows in every other layer unless
/// layer_types differs.
void add_gemma2_keys(std::vector<ConfigKey>& keys);
/// Adds further keys of Gemma3ForCausalLM: windows in all layers except every sixth.
void add_gemma3_keys(std::vector<ConfigKey>& keys);

}  // namespace trireme::hugging_face
