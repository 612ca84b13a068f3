#pragma once

#include <trireme/base/types.hpp>
#include <trireme/deck/deck.hpp>
#include <trireme/hugging_face/format.hpp>

#include <cstdint>
#include <string>
#include <vector>

/// Models in config.json of Hugging Face's transformers.
namespace trireme::hugging_face {

/// A value of config.json on which the weights do not depend.
struct FreeValue {
  std::string name;  ///< "attn_pdrop", "vision_config.attention_dropout"
  std::string deck;  ///< key of the deck: "dropout"; "": none
  json value;
};

struct ModelFile {
  const Format* format = nullptr;
  std::string path;  ///< for messages
  deck::ModelConfig model;
  std::vector<FreeValue> free;
  /// Names of members that neither Trireme nor transformers' class uses.
  std::vector<std::string> unknown;
  /// Ids of the decoder's first token, and of the end of sources and targets; −1 for a model
  /// without an encoder.
  std::int64_t start_token = -1, end_token = -1;
  /// Id of the tokens that stand for an image; −1 for a model without images.
  std::int64_t image_token = -1;
};

/// Member of config.json with the decoder's first token.
inline constexpr const char* start_key = "decoder_start_token_id";
/// Members of config.json with the token of images: the name that transformers writes, and another
/// that it reads.
inline constexpr const char* image_token_key = "image_token_index";
inline constexpr const char* other_image_token_key = "image_token_id";

/// UsageError that lists the properties of the deck's model that transformers' class for the family
/// does not have, such as norm = "layer" of a llama.
void expect_exportable(const deck::Deck& deck);

/// PyTorch's name of a weight type. Error for integer types.
const char* torch_name(DType type);

/// Text of config.json for this model with weights of this type. `end_tokens`: ids that end a
/// decoder's texts (eos_token_id); the first id also begins texts (bos_token_id). Without ids, and
/// for an encoder, both members are null. `start_token`: with an encoder, the decoder's first
/// token, which transformers also takes as padding; there is then no token that begins texts.
/// `image_token`: token of images, for a model that sees images.
std::string config_text(const deck::ModelConfig& model, DType dtype,
                        const std::vector<std::int64_t>& end_tokens, std::int64_t start_token = 0,
                        std::int64_t image_token = -1);

/// Inverse of config_text, with transformers' defaults for missing keys. UsageError that lists
/// missing keys and unsupported values. `path` is for messages.
ModelFile parse_config(const std::string& content, const std::string& path);

/// Whether files of the model's family have modules that predict further tokens.
bool files_have_modules(Family family);

/// Gives the file's model the modules of the deck's model. UsageError if files have none.
void take_modules(ModelFile& file, const deck::Deck& deck);

/// UsageError that lists the differences between config.json and the deck's model on which the
/// weights depend. A deck with shared layers always differs.
void expect_same_model(const ModelFile& file, const deck::Deck& deck);

/// A line for each free value that differs from the deck's value, and one line for all unknown
/// members.
std::vector<std::string> differences(const ModelFile& file, const deck::Deck& deck);

/// Text of the section [model] of a deck for this model, and of [experts] if the family has
/// experts, of [vision] if it sees images, or of [encoder] and [data] if it has an encoder, without
/// a final line feed.
std::string model_toml(const ModelFile& file);

}  // namespace trireme::hugging_face
