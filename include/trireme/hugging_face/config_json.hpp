#pragma once

#include <trireme/base/types.hpp>
#include <trireme/deck/deck.hpp>
#include <trireme/hugging_face/format.hpp>

#include <cstdint>
#include <string>
#include <vector>

/// Models in config.json of Hugging Face's transformers.
namespace trireme::hugging_face {

/// A value of config.json that only concerns training; training uses the deck's value.
struct FreeValue {
  std::string name;  ///< "attn_pdrop"
  std::string deck;  ///< "dropout"
  json value;
};

struct ModelFile {
  const Format* format = nullptr;
  std::string path;  ///< for messages
  deck::ModelConfig model;
  std::vector<FreeValue> free;
  /// Names of members that neither Trireme nor transformers' class uses.
  std::vector<std::string> unknown;
};

/// UsageError that names every property of the deck's model that transformers' class of its family
/// lacks and config.json cannot express, such as norm = "layer" of a llama.
void expect_exportable(const deck::Deck& deck);

/// PyTorch's name of a weight type.
const char* torch_name(DType type);

/// config.json of this model with weights of this type. `end_tokens`, if the tokenizer has some,
/// are the ids that end a decoder's texts; the first of them also begins texts.
std::string config_text(const deck::ModelConfig& model, DType dtype,
                        const std::vector<std::int64_t>& end_tokens);

/// Inverse of config_text, with transformers' defaults for missing keys. One UsageError names every
/// key whose value no Trireme model supports, with the value and the expected value. `path` is for
/// messages.
ModelFile parse_config(const std::string& content, const std::string& path);

/// UsageError that shows both values of every binding key of [model] that differs between deck and
/// config.json. Layers of a file never share weights.
void expect_same_model(const ModelFile& file, const deck::Deck& deck);

/// A line for each training value that differs from the deck's, and for unknown members.
std::vector<std::string> differences(const ModelFile& file, const deck::Deck& deck);

/// The section [model] of a deck for this model, without a final line feed.
std::string model_toml(const ModelFile& file);

}  // namespace trireme::hugging_face
