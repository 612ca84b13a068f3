#pragma once

#include <trireme/hugging_face/complaints.hpp>
#include <trireme/hugging_face/config_key.hpp>

#include <cstdint>
#include <vector>

/// Keys of config.json for rotary positions, for windows and for Gemma's classes.
namespace trireme::hugging_face {

/// Adds keys of rotary positions: rope_parameters, and rope_scaling and rope_theta of older files.
/// Call after max_position_embeddings has been added to `keys`. `theta`: default of rope_theta.
/// `otherwise`: text of the default of rope_parameters; null: no scaling.
void add_rotary_keys(std::vector<ConfigKey>& keys, double theta, const char* otherwise = nullptr);

/// Like add_rotary_keys, for models whose layers with a window have a separate base and no scaling:
/// rope_parameters has an object for each kind of layer.
void add_rotary_keys_of_two_kinds(std::vector<ConfigKey>& keys);

/// Reports members of rope_parameters and rope_scaling that Trireme does not support.
void check_rotary(const json& file, const deck::ModelConfig& m, Complaints& complaints);

/// Adds keys of windows: the number of tokens that a token sees, including itself, and the layers
/// with this limit. `otherwise`: default of the number of tokens.
void add_windows(std::vector<ConfigKey>& keys, std::int64_t otherwise);

/// Adds keys of GemmaForCausalLM: the form of GELU, and members with a fixed value.
void add_gemma_keys(std::vector<ConfigKey>& keys);
/// Adds keys of Gemma2ForCausalLM: the form of GELU, soft caps of attention scores and logits, the
/// scale of attention scores, and windows, by default in every other layer.
void add_gemma2_keys(std::vector<ConfigKey>& keys);
/// Adds keys of Gemma3ForCausalLM: the form of GELU, a soft cap of the logits, the scale of
/// attention scores, and windows, by default in all layers except every sixth layer.
void add_gemma3_keys(std::vector<ConfigKey>& keys);

}  // namespace trireme::hugging_face
