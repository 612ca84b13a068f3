#pragma once

#include <trireme/hugging_face/config_key.hpp>

#include <string>
#include <vector>

namespace trireme::hugging_face {

/// A family's keys, and keys that files of all families may have. A family's own key of the same
/// name takes precedence.
std::vector<ConfigKey> with_general_keys(std::vector<ConfigKey> keys);

/// Names of members of a file that have a value (says_nothing()) and are neither keys nor known to
/// have no effect.
std::vector<std::string> unknown_members(const json& file, const std::vector<ConfigKey>& keys);

/// Whether a value is null, false, or an empty text, list or object.
bool says_nothing(const json& value);

std::string lower_case(std::string word);

}  // namespace trireme::hugging_face
