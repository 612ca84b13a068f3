#pragma once

#include <trireme/architecture/array_spec.hpp>
#include <trireme/checkpoint/reader.hpp>
#include <trireme/deck/deck.hpp>
#include <trireme/hugging_face/format.hpp>

#include <map>
#include <string>
#include <vector>

/// Low-rank adapters in the files of Hugging Face's PEFT: adapter_config.json and
/// adapter_model.safetensors with A [r, in] and B [out, r] of each adapted linear layer, and with
/// DoRA the magnitudes [out].
namespace trireme::hugging_face {

inline constexpr const char* adapter_config_name = "adapter_config.json";
inline constexpr const char* adapter_weights_name = "adapter_model.safetensors";

/// The tensors "base_model.model.<layer>.lora_A.weight" and lora_B of a model with adapters, and
/// with DoRA "base_model.model.<layer>.lora_magnitude_vector". UsageError if a linear layer of
/// transformers' class consists of arrays without a common A.
std::vector<Tensor> adapter_tensors(const Format& format, const deck::ModelConfig& model);

/// Current name of a tensor of adapters, in whose name another version of transformers may have
/// other names of the model's modules; "" for a module that the model does not use. Other names are
/// returned unchanged.
std::string adapter_name_today(const std::string& name, const Format& format,
                               const deck::ModelConfig& model);

/// Text of adapter_config.json. `base`: value of base_model_name_or_path; "": null.
std::string adapter_config_text(const deck::ModelConfig& model, const std::string& base);

/// Compares adapter_config.json with the deck's [adapter]. Returns a line if the dropout differs.
/// UsageError that lists unsupported or contradicting values. `path` is for messages.
std::vector<std::string> expect_same_adapter(const std::string& content, const std::string& path,
                                             const deck::Deck& deck);

/// Adds the updates factor · B A to the weights of a model with adapters. With DoRA, then scales
/// the rows of the weights to the trained norms.
class Merger {
 public:
  Merger(const checkpoint::Reader& reader, const deck::ModelConfig& model, DType type);

  /// `numbers`: the weights of `piece`. Weights without an adapter do not change.
  void add_update(const Piece& piece, char* numbers) const;

 private:
  std::vector<double> read(const architecture::ArraySpec& spec, std::int64_t block,
                           std::int64_t blocks) const;

  const checkpoint::Reader& reader_;
  const deck::ModelConfig& model_;
  DType type_;
  std::map<std::string, architecture::ArraySpec> specs_;
};

}  // namespace trireme::hugging_face
