#pragma once

#include <trireme/deck/config.hpp>

#include <nlohmann/json.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trireme::hugging_face {

using nlohmann::json;

/// A key of config.json, for writing and reading the file and for comparing it with a deck.
struct ConfigKey {
  std::string name;  ///< "n_layer"; "rope_parameters.factor" for a member of another key
  std::string deck;  ///< corresponding key of the deck: "layers"; "": none
  /// The value written for a model; a discarded value is not written. Empty function: never
  /// written.
  std::function<json(const deck::ModelConfig&)> write;
  /// Stores a value in the model; false if no Trireme model supports it.
  std::function<bool(const json&, deck::ModelConfig&)> read;
  std::string expected;  ///< valid values, for messages: "a whole number from 1 to 65536"
  /// The value as text in a deck; "" omits the key. Empty function: the same text as in
  /// config.json.
  std::function<std::string(const deck::ModelConfig&)> in_deck;
  /// transformers' default if the key is missing; empty: the key is required.
  std::function<json(const deck::ModelConfig&)> otherwise;
  /// The value that null stands for; empty: as if the key were missing.
  std::function<json(const deck::ModelConfig&)> null;
  /// Whether the weights depend on the value.
  bool binding = true;
  std::string section = "model";  ///< section of `deck`: "model", "experts", "encoder", "vision"
  std::string object = {};  ///< object of config.json with the key: "text_config"; "": the file

  /// Name for messages: "text_config.hidden_size".
  std::string path() const { return object.empty() ? name : object + "." + name; }

  /// Whether the key is a member of another key, which writes and reads the value.
  bool is_part() const { return name.find('.') != std::string::npos; }

  ConfigKey&& without(json value) &&;  ///< sets `otherwise`
  ConfigKey&& without(std::function<json(const deck::ModelConfig&)> value) &&;
  ConfigKey&& with_null(std::function<json(const deck::ModelConfig&)> value) &&;  ///< sets `null`
  ConfigKey&& free() &&;
};

using WholeMember = std::int64_t deck::ModelConfig::*;
using NumberMember = double deck::ModelConfig::*;
using FlagMember = bool deck::ModelConfig::*;
using ExpertsWhole = std::int64_t deck::ExpertsConfig::*;
using VisionWhole = std::int64_t deck::VisionConfig::*;

/// A key with an integer from 1 to `largest`.
ConfigKey whole(std::string name, std::string deck, WholeMember member, std::int64_t largest);
/// Key for a whole number of [experts]; arguments as above.
ConfigKey whole(std::string name, std::string deck, ExpertsWhole member, std::int64_t largest);
/// Key for a whole number of [vision]; arguments as above.
ConfigKey whole(std::string name, std::string deck, VisionWhole member, std::int64_t largest);
/// A key with a number above 0.
ConfigKey positive(std::string name, std::string deck, NumberMember member);
ConfigKey flag(std::string name, std::string deck, FlagMember member);
/// A key with the form of GELU, under transformers' names.
ConfigKey gelu(std::string name);
/// A key with a dropout probability, not binding. `member`, if given, receives the value.
ConfigKey dropout(std::string name, std::optional<NumberMember> member);
/// A key with one value for all Trireme models of the family. `values`: the value that is written
/// and that a missing key stands for, then its synonyms.
ConfigKey fixed(std::string name, std::vector<json> values);
/// A key whose value follows from other keys and is checked.
ConfigKey implied(std::string name, std::function<json(const deck::ModelConfig&)> value);
/// A key that is written, and ignored when a file is read.
ConfigKey written(std::string name, std::function<json(const deck::ModelConfig&)> value);

/// Limits of the deck's keys.
inline constexpr std::int64_t size_limit = 16777216;
inline constexpr std::int64_t layers_limit = 65536;
inline constexpr std::int64_t experts_limit = 4096;
inline constexpr std::int64_t vocabulary_limit = 1 << 30;

/// A family's keys, and keys that files of all families may have. A family's own key of the same
/// name takes precedence.
std::vector<ConfigKey> with_general_keys(std::vector<ConfigKey> keys);

/// Names of members of a file, and of its objects that have keys, that have a value
/// (says_nothing()) and are neither keys nor known to have no effect.
std::vector<std::string> unknown_members(const json& file, const std::vector<ConfigKey>& keys);

/// Whether a value is null, false, or an empty text, list or object.
bool says_nothing(const json& value);

/// The object of a file that has the key; null if there is none.
json object_of(const json& file, const ConfigKey& key);

/// A member of an object; null if there is none.
json member_of(const json& object, const char* name);

/// Whether a value is a finite number above 0.
bool is_positive(const json& value);

std::string lower_case(std::string word);

}  // namespace trireme::hugging_face
