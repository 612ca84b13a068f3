#pragma once

#include <trireme/architecture/operation.hpp>
#include <trireme/base/types.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/layout/split.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

/// The only description of a model: plan/ derives bytes and FLOPs from it, and model/ derives
/// memory and initial values.
namespace trireme::architecture {

/// A part of a model: the embedding, a layer or the head. Blocks of one kind have the same
/// operations.
struct Block {
  std::size_t kind = 0;  ///< index in Architecture::kinds
  std::string prefix;    ///< prefix of the names of the block's arrays: "layers.3."
};

/// Block number of layer 0 … L−1.
constexpr std::int64_t block_of_layer(std::int64_t layer) {
  return layer + 1;
}

/// A model is a chain of blocks: the embedding, the layers and the head.
struct Architecture {
  deck::ModelConfig model;
  deck::ModelConfig source_model;  ///< ModelConfig::of_source()
  std::vector<ArraySpec> arrays;   ///< in registry order; array numbers are positions in this list
  /// Operations of each kind of block: the embedding, the kinds of layers in the order of their
  /// first layers, and the head.
  std::vector<BlockDescription> kinds;
  /// In the order of the forward pass. A block's number is its position: 0 is the embedding, 1 … L
  /// are the layers, and L + 1 is the head.
  std::vector<Block> blocks;
  bool has_frozen = false;  ///< whether any array is frozen
  /// First block with a trained array. Earlier blocks need no backward pass. Always 0 with shared
  /// layers.
  std::int64_t first_trained = 0;
  /// First block that has a backward pass: `first_trained`, or the block after a frozen encoder.
  /// Earlier layers keep nothing for a backward pass.
  std::int64_t first_backward = 0;

  /// The model whose properties the layers of a stream have.
  const deck::ModelConfig& model_of(Stream stream) const {
    return stream == Stream::source ? source_model : model;
  }
  const BlockDescription& embedding() const { return kinds.front(); }
  const BlockDescription& head() const { return kinds.back(); }
  /// Kinds of layers. Lists of values by kind of layer have the same order.
  std::span<const BlockDescription> layer_kinds() const {
    return std::span(kinds).subspan(1, kinds.size() - 2);
  }
  const Block& block(std::int64_t number) const { return blocks[static_cast<std::size_t>(number)]; }
  std::int64_t head_block() const { return model.all_layers() + 1; }
  bool is_layer(std::int64_t block) const { return block >= 1 && block <= model.all_layers(); }
  const BlockDescription& description(std::int64_t number) const {
    return kinds[block(number).kind];
  }
  /// Index in layer_kinds() of layer 0 … L−1.
  std::size_t kind_of(std::int64_t layer) const { return block(block_of_layer(layer)).kind - 1; }
  /// First of the layers that has a backward pass; layers.end() if none has one.
  std::int64_t first_with_backward(const layout::Slice& layers) const {
    return std::clamp(first_backward - block_of_layer(0), layers.offset, layers.end());
  }
  /// Whether any layer of a kind, an index in layer_kinds(), has a backward pass.
  bool has_backward(std::size_t kind) const;
  /// Number of layers of each kind in a range.
  std::vector<std::int64_t> count_kinds(const layout::Slice& layers) const;

  /// Number of layers with arrays of their own.
  std::int64_t groups() const {
    return model.shared_layers > 0 ? model.shared_layers : model.all_layers();
  }
  std::int64_t parameters() const;
  /// Number of parameters that the computation for a token uses: those of active experts, and all
  /// others.
  std::int64_t active_parameters() const;
  /// Multiplications per token with elements of the layers' matrices. Matrices of shared layers
  /// count in each layer, and only the active experts of a token count.
  double layer_products() const;
  /// Multiplications per token with elements of the head's matrices: the mean over all tokens of a
  /// sample, because the head may process only some of them.
  double head_products() const;
  /// Multiplications per token with elements of the embedding's matrices: of patches.
  double embedding_products() const;
  /// The part of head_products() that computes logits.
  double logit_products() const;
  /// Multiplications per token with keys and values, in all layers. Without windows: L H K S with a
  /// causal mask (half of the full square), otherwise 2 L H K S.
  double attention_products() const;
  /// Multiplications per token with elements of frozen matrices, whose gradients are not computed:
  /// of the whole model, of the embedding, and of the head.
  double frozen_products() const;
  double frozen_embedding_products() const;
  double frozen_head_products() const;
  /// Model FLOPs of a training step per token, without recomputation: 6 per multiplication of
  /// layers, head and attention, and 4 of the embedding, less 2 per multiplication with a frozen
  /// element.
  double model_flops_per_token() const;
  /// model_flops_per_token() of the same model without frozen arrays.
  double all_flops_per_token() const;
};

/// The architecture of a deck's model. Initial weights of products that add to the residual stream
/// are scaled by 1/√(2L) (Radford et al. 2019, GPT-2), except in post-norm models.
Architecture describe(const deck::ModelConfig& model);

std::map<std::string, ArraySpec> arrays_by_name(const deck::ModelConfig& model);

}  // namespace trireme::architecture
