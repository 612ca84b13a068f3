#pragma once

#include <trireme/hugging_face/complaints.hpp>
#include <trireme/hugging_face/config_key.hpp>

#include <vector>

namespace trireme::hugging_face {

/// Keys of rotary positions: rope_parameters, or rope_scaling and rope_theta as in files from
/// before 2025. They follow max_position_embeddings, to which some types of scaling refer.
void add_rotary_keys(std::vector<ConfigKey>& keys);

/// The same for models whose layers with a window have rotary positions of their own, without
/// scaling: rope_parameters has an object for each kind of layer.
void add_rotary_keys_of_two_kinds(std::vector<ConfigKey>& keys);

/// Complains about members of rope_parameters and rope_scaling that are missing, unknown or
/// contradict one another.
void check_rotary(const json& file, const deck::ModelConfig& m, Complaints& complaints);

}  // namespace trireme::hugging_face
