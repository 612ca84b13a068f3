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

/// A key of config.json: from one list of them per family come writing, reading and the comparison
/// with a deck.
struct ConfigKey {
  std::string name;  ///< "n_layer"
  std::string deck;  ///< the key of [model] that says the same: "layers"; "": none
  /// What is written for a model. Empty: nothing is, and the key is only understood.
  std::function<json(const deck::ModelConfig&)> write;
  /// Takes a value over into the model; false if no Trireme model has it.
  std::function<bool(const json&, deck::ModelConfig&)> read;
  std::string expected;  ///< "a whole number from 1 to 65536"
  /// How the deck says the value; empty: as config.json does. The text "" leaves the key out.
  std::function<std::string(const deck::ModelConfig&)> in_deck;
  /// The value that transformers takes for a file without the key; empty: it must be there.
  std::function<json(const deck::ModelConfig&)> otherwise;
  /// The value that null stands for; empty: the same as without the key.
  std::function<json(const deck::ModelConfig&)> null;
  /// The weights were made for this value, so that the deck's must be the same. Others belong to
  /// training.
  bool binding = true;

  ConfigKey&& without(json value) &&;  ///< `otherwise` is this value
  ConfigKey&& without(std::function<json(const deck::ModelConfig&)> value) &&;
  ConfigKey&& with_null(std::function<json(const deck::ModelConfig&)> value) &&;  ///< `null`
  ConfigKey&& free() &&;                                                          ///< not binding
};

using WholeMember = std::int64_t deck::ModelConfig::*;
using NumberMember = double deck::ModelConfig::*;
using FlagMember = bool deck::ModelConfig::*;

/// A whole number from 1 to `largest`.
ConfigKey whole(std::string name, std::string deck, WholeMember member, std::int64_t largest);
/// A number above 0.
ConfigKey positive(std::string name, std::string deck, NumberMember member);
ConfigKey flag(std::string name, std::string deck, FlagMember member);
/// The form of GELU, under transformers' names.
ConfigKey gelu(std::string name);
/// A share of activations, which belongs to training. Without a member it is only held against the
/// deck's dropout.
ConfigKey dropout(std::string name, std::optional<NumberMember> member);
/// What all Trireme models of the family have: the first of these values, which mean the same.
/// Files without the key have it.
ConfigKey fixed(std::string name, std::vector<json> values);
/// What follows from other keys, in a file that has the key at all.
ConfigKey implied(std::string name, std::function<json(const deck::ModelConfig&)> value);
/// Written, never read.
ConfigKey written(std::string name, std::function<json(const deck::ModelConfig&)> value);

/// The limits of the deck's own keys.
inline constexpr std::int64_t size_limit = 16777216;
inline constexpr std::int64_t layers_limit = 65536;
inline constexpr std::int64_t vocabulary_limit = 1 << 30;

}  // namespace trireme::hugging_face
