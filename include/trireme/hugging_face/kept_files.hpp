#pragma once

#include <trireme/base/types.hpp>
#include <trireme/deck/config.hpp>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

/// The files beside the weights of an imported model. A run keeps them with its checkpoints, and
/// the export writes them again, except for members that training changed.
namespace trireme::hugging_face {

inline constexpr const char* model_config_name = "config.json";
inline constexpr const char* generation_config_name = "generation_config.json";
/// Files that an import keeps.
inline constexpr std::array kept_names{
    model_config_name,   generation_config_name, "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "chat_template.jinja",  "chat_template.json"};

/// Whether a file of kept_names describes the tokenizer.
bool is_of_tokenizer(const std::string& name);
/// The name of a kept file in a checkpoint: "hugging_face_config.json".
std::string name_in_checkpoint(const std::string& name);
/// Whether a file of a checkpoint has the name of a kept file.
bool is_kept(const std::string& name_in_checkpoint);

/// The files of kept_names in a folder, by their names in a checkpoint. `tokenizer`: also the
/// tokenizer's files. UsageError for a generation_config.json that is not a JSON object.
std::map<std::string, std::string> files_to_keep(const std::string& folder, bool tokenizer);

/// A file to write, and a line for each member that differs from the imported file.
struct UpdatedFile {
  std::string content;
  std::vector<std::string> changes;
};

/// The imported config.json with this model's changes. max_position_embeddings is the larger of its
/// value and the model's sequence for rotary positions. `end_tokens` are added to eos_token_id.
/// `path` is for messages.
UpdatedFile updated_config(const std::string& imported, const std::string& path,
                           const deck::ModelConfig& model, DType dtype,
                           const std::vector<std::int64_t>& end_tokens);

/// The imported generation_config.json; `end_tokens` are added to its eos_token_id, if it has one.
UpdatedFile updated_generation_config(const std::string& imported, const std::string& path,
                                      const std::vector<std::int64_t>& end_tokens);

}  // namespace trireme::hugging_face
