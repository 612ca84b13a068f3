#pragma once

#include <trireme/base/types.hpp>
#include <trireme/checkpoint/hyperslab.hpp>
#include <trireme/hugging_face/complaints.hpp>
#include <trireme/hugging_face/config_key.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// What Trireme's families are called in the files of Hugging Face's transformers. A family is one
/// list of keys and one of tensors (gpt2.cpp, bert.cpp, and llama.cpp for llama and the families
/// that follow it); everything else works from these lists.
namespace trireme::hugging_face {

using checkpoint::Extents;

/// An array of the model, or the part of it at one place of its first axis.
struct Piece {
  std::string array;
  std::int64_t place = whole_array;

  static constexpr std::int64_t whole_array = -1;
};

/// A tensor of the files and what it is made of: the pieces, one behind the other, are a matrix
/// [rows, columns], of which the tensor is the same or the transpose.
struct Tensor {
  std::string name;  ///< as written today: "transformer.h.0.attn.c_attn.weight"
  Extents shape;
  std::vector<Piece> pieces;
  bool transposed = false;  ///< and then it has two axes
};

/// A tensor beside another one.
struct Copy {
  enum class Use : std::uint8_t {
    tied,  ///< a file may hold it, and then it has the same bits
    none   ///< transformers has it and uses the other one; old files hold it alone
  };
  std::string name;
  std::string of;
  Use use = Use::tied;
};

struct Format {
  Family family = Family::gpt;
  std::string model_type;  ///< of config.json: "gpt2"
  std::vector<ConfigKey> keys;
  /// transformers' class for such a model: "GPT2LMHeadModel".
  std::string (*model_class)(const deck::ModelConfig&) = nullptr;
  /// Complains about values that are right alone and not together. `file` is config.json.
  void (*check)(const json& file, const deck::ModelConfig&, Complaints&) = nullptr;
  /// All tensors of a model; every array in exactly one of them, or where layers share weights in
  /// that of each such layer.
  std::vector<Tensor> (*tensors)(const deck::ModelConfig&) = nullptr;
  std::vector<Copy> (*copies)(const deck::ModelConfig&) = nullptr;
  /// The name that a file's tensor bears today; "" for what is no weight of this model.
  std::string (*today)(std::string_view name, const deck::ModelConfig&) = nullptr;
};

const Format& format_of(Family family);
/// That of a config.json's model_type; UsageError naming `path` if there is none.
const Format& format_of(const json& model_type, const std::string& path);

/// "layers.3.": what the names of the arrays with a layer's weights begin with. Where layers share
/// weights, that is the first of them.
std::string layer_prefix(const deck::ModelConfig& model, std::int64_t layer);

/// `name` behind `prefix`, unless it has it or begins with the prefix of a head.
std::string with_prefix(std::string_view name, std::string_view prefix, std::string_view head);

}  // namespace trireme::hugging_face
