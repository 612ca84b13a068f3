#pragma once

#include <trireme/base/types.hpp>
#include <trireme/checkpoint/hyperslab.hpp>
#include <trireme/hugging_face/complaints.hpp>
#include <trireme/hugging_face/config_key.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Trireme's families of models in the files of Hugging Face's transformers. Each family has a list
/// of keys and a list of tensors (gpt2.cpp, bert.cpp, llama.cpp).
namespace trireme::hugging_face {

using checkpoint::Extents;

/// An array of the model, or its part at these indices of the first axes.
struct Piece {
  std::string array;
  std::vector<std::int64_t> place = {};
};

using Axes = std::vector<std::size_t>;

/// A tensor of the files: its pieces, concatenated along the first axis, with the axes in the
/// file's order.
struct Tensor {
  std::string name;  ///< current name: "transformer.h.0.attn.c_attn.weight"
  Extents shape;     ///< in the file
  std::vector<Piece> pieces;
  /// Extents of the concatenated pieces; empty: `shape`, with the axes in the same order.
  Extents extents = {};
  /// The file's axis i is axis axes[i] of `extents`. `shape` has one axis for each of them, or one
  /// for several neighbours.
  Axes axes = {};
  /// `axes` of the values in MXFP4 (mxfp4.hpp), which a file may have as NAME_blocks and
  /// NAME_scales: a matrix for each index of the file's first axis. Empty: files have numbers only.
  Axes packed_axes = {};
  /// Whether an export with values of two bytes has this tensor in fp32.
  bool wide = false;
  /// Value of all elements of a tensor without pieces (Format::unused).
  double constant = 0;

  /// Position in the file of an axis of the pieces.
  std::size_t place_of(std::size_t axis) const {
    return axes.empty() ? axis
                        : static_cast<std::size_t>(std::ranges::find(axes, axis) - axes.begin());
  }
};

/// Tensor `name`, which duplicates tensor `of`.
struct Copy {
  enum class Use : std::uint8_t {
    tied,  ///< a file may contain the copy, with the same bits as tensor `of`
    none   ///< transformers uses tensor `of`; old files may have only the copy
  };
  std::string name;
  std::string of;
  Use use = Use::tied;
};

struct Format {
  Family family = Family::gpt;
  std::string model_type;  ///< model_type in config.json: "gpt2"
  std::vector<ConfigKey> keys;
  /// transformers' class for the model: "GPT2LMHeadModel".
  std::string (*model_class)(const deck::ModelConfig&) = nullptr;
  /// Reports values that contradict each other. `file` is config.json.
  void (*check)(const json& file, const deck::ModelConfig&, Complaints&) = nullptr;
  /// All tensors of a model. Each element of an array is in exactly one tensor; with shared layers,
  /// in one tensor of each layer that shares the array.
  std::vector<Tensor> (*tensors)(const deck::ModelConfig&) = nullptr;
  std::vector<Copy> (*copies)(const deck::ModelConfig&) = nullptr;
  /// The current name of a file's tensor; "" if the tensor is not a weight of this model.
  std::string (*today)(std::string_view name, const deck::ModelConfig&) = nullptr;
  /// A file's layer with a tensor of this name is a module that predicts a further token, which an
  /// import leaves out unless the model has it: "eh_proj.weight". "": files have no modules.
  std::string further_token = {};
  /// Tensors of transformers' class without effect on the model, which only an export writes, as
  /// constants. Null: none.
  std::vector<Tensor> (*unused)(const deck::ModelConfig&) = nullptr;
  /// If a file's tensor of this name differs from the token table, embeddings are not tied,
  /// whatever config.json says: "lm_head.weight". "": config.json decides.
  std::string own_output = {};
};

const Format& format_of(Family family);
/// The format of a model: that of its family, or image_format() for a model that sees images.
/// UsageError if transformers has no such model.
const Format& format_of(const deck::ModelConfig& model);
/// The format for a config.json. UsageError that names `path` if there is none for its model_type.
const Format& format_of(const json& file, const std::string& path);

/// "layers.3.": prefix of a layer's arrays. Layers that share weights have the same prefix.
std::string layer_prefix(const deck::ModelConfig& model, std::int64_t layer);

/// `name` with `prefix` added, unless `name` begins with `prefix` or `head`.
std::string with_prefix(std::string_view name, std::string_view prefix, std::string_view head);

/// The families of Hugging Face's LlamaForCausalLM, Qwen2ForCausalLM and their relatives. Their
/// rotary positions pair elements i and i + K/2 of a head like Trireme's, so that queries and keys
/// need no permutation. Files may lack the prefix "model." and contain `rotary_emb.inv_freq`.
const Format& llama_format(Family family);

/// The family gpt as Hugging Face's GPT2LMHeadModel. The weights of its Conv1D are [in, out],
/// Trireme's weights are [out, in]. Files may lack the prefix "transformer." and contain the masks
/// `attn.bias` and `attn.masked_bias`.
const Format& gpt2_format();

/// The family bert as Hugging Face's BertForPreTraining, or without a sentence loss as its
/// BertForMaskedLM. Files may lack the prefix "bert.", name the parameters of LayerNorm `gamma` and
/// `beta`, and contain `position_ids` and a sentence head that the model does not have.
const Format& bert_format();

/// The family t5 as Hugging Face's T5ForConditionalGeneration, versions 1.0 and 1.1. Files may
/// contain copies of the token table for both stacks.
const Format& t5_format();

/// Models that see images as Hugging Face's LlavaForConditionalGeneration: CLIP's or SigLIP's
/// encoder, a projector, and a language model of this family; for gemma3 as its
/// Gemma3ForConditionalGeneration. Null for a family without such a format. Files may have more
/// layers of the encoder than a LLaVA uses, and tensors with the names of different versions of
/// transformers.
const Format* image_format(Family family);
/// Why transformers has no class with this encoder of images before this language model; "": it
/// has one.
std::string image_format_mistake(const deck::ModelConfig& model);

inline constexpr const char* llava_type = "llava";
inline constexpr const char* gemma3_type = "gemma3";
/// The families of LLaVA's language models, for messages.
inline constexpr const char* llava_families = R"("llama", "mistral", "qwen2" or "qwen3")";
/// The objects of config.json of models that see images.
inline constexpr const char* text_object = "text_config";
inline constexpr const char* vision_object = "vision_config";

}  // namespace trireme::hugging_face
