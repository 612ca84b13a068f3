#pragma once

#include <trireme/hugging_face/config_key.hpp>

#include <string>
#include <vector>

namespace trireme::hugging_face {

/// A family's keys, and keys for general members of config.json that must have a value without
/// effect. A family's own key of the same name takes precedence.
std::vector<ConfigKey> with_general_keys(std::vector<ConfigKey> keys);

/// Names of members of a file that are neither keys nor known to have no effect, except members
/// whose value is null, false or empty.
std::vector<std::string> unknown_members(const json& file, const std::vector<ConfigKey>& keys);

/// Whether a value is null, false, or an empty text, list or object.
bool says_nothing(const json& value);

std::string lower_case(std::string word);

}  // namespace trireme::hugging_face
