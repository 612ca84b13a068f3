#pragma once

#include <trireme/hugging_face/config_key.hpp>

#include <string>
#include <vector>

namespace trireme::hugging_face {

/// A family's keys, and general members of a config.json with which transformers, or another
/// program that loads the file, would compute another function than the family's: these must have a
/// value without effect. The family's own keys of these names take precedence.
std::vector<ConfigKey> with_general_keys(std::vector<ConfigKey> keys);

/// Members that are neither keys nor members of transformers' classes, unless their value is null,
/// false or empty.
std::vector<std::string> unknown_members(const json& file, const std::vector<ConfigKey>& keys);

/// Whether a value is null, false, or an empty text, list or object.
bool says_nothing(const json& value);

std::string lower_case(std::string word);

}  // namespace trireme::hugging_face
