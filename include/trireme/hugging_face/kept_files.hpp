#pragma once

#include <trireme/base/types.hpp>
#include <trireme/deck/config.hpp>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

/// The files beside the weights of an imported model. Checkpoints keep these files; an export
/// writes them with the changes that the trained model needs.
namespace trireme::hugging_face {

inline constexpr const char* model_config_name = "config.json";
inline constexpr const char* generation_config_name = "generation_config.json";
/// transformers' preparation of images, alone or with the tokenizer's part.
inline constexpr const char* image_processor_name = "preprocessor_config.json";
inline constexpr const char* processor_name = "processor_config.json";
/// Files that an import keeps.
inline constexpr std::array kept_names{
    model_config_name,   generation_config_name,  image_processor_name,
    processor_name,      "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "chat_template.jinja",   "chat_template.json"};

/// Whether a file of kept_names describes the tokenizer.
bool is_of_tokenizer(const std::string& name);
/// The name of a kept file in a checkpoint: "hugging_face_config.json".
std::string name_in_checkpoint(const std::string& name);
/// Whether a name of a file in a checkpoint is the name of a kept file.
bool is_kept(const std::string& name_in_checkpoint);

/// Contents of the files of kept_names in a folder, by their names in a checkpoint. `tokenizer`:
/// with the files that describe the tokenizer. UsageError for an invalid generation_config.json.
std::map<std::string, std::string> files_to_keep(const std::string& folder, bool tokenizer);

/// A file to write, and a line for each member that differs from the imported file.
struct UpdatedFile {
  std::string content;
  std::vector<std::string> changes;
};

/// The imported config.json with the changes that this model needs. With rotary positions,
/// max_position_embeddings does not decrease. Adds `end_tokens` to eos_token_id of a decoder.
/// `start_token` replaces decoder_start_token_id, if there is one, and `image_token` the token of
/// images; −1: unchanged. `path` is for messages.
UpdatedFile updated_config(const std::string& imported, const std::string& path,
                           const deck::ModelConfig& model, DType dtype,
                           const std::vector<std::int64_t>& end_tokens,
                           std::int64_t start_token = -1, std::int64_t image_token = -1);

/// The imported generation_config.json. Adds `end_tokens` to its eos_token_id, if it has one.
/// `start_token`: as above.
UpdatedFile updated_generation_config(const std::string& imported, const std::string& path,
                                      const std::vector<std::int64_t>& end_tokens,
                                      std::int64_t start_token = -1);

}  // namespace trireme::hugging_face
