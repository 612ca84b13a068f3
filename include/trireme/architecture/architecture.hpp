#pragma once

#include <trireme/architecture/operation.hpp>
#include <trireme/base/types.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/layout/split.hpp>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

/// The only description of a model; plan/ derives bytes and FLOPs from it, model/ memory and
/// initialisation.
namespace trireme::architecture {

/// A part of a model. Blocks of one kind have the same operations, on arrays of their own.
struct Block {
  std::size_t kind = 0;  ///< index in Architecture::kinds
  std::string prefix;    ///< prefix of its arrays' names: "layers.3."
};

/// A model is a chain of blocks: the embedding, the layers and the head.
struct Architecture {
  deck::ModelConfig model;
  std::vector<ArraySpec> arrays;  ///< in registry order; array numbers are positions in this list
  /// Operations of each kind of block: the embedding, the kinds of layers in the order of their
  /// first layers, and the head. Layers differ in windows, in frozen arrays, and in the dropout of
  /// a first layer that norms the embedding.
  std::vector<LayerDescription> kinds;
  std::vector<Block> blocks;  ///< in the order of the forward pass
  bool has_frozen = false;    ///< whether any array is frozen
  /// First part of the model with a trained array: −1: the embedding, L: the head. Backward passes
  /// before it are not needed.
  std::int64_t first_trained = -1;

  const LayerDescription& embedding() const { return kinds.front(); }
  const LayerDescription& head() const { return kinds.back(); }
  /// Kinds of layers. Values by kind of layer are lists in this order.
  std::span<const LayerDescription> layer_kinds() const {
    return std::span(kinds).subspan(1, kinds.size() - 2);
  }
  const Block& block_of(std::int64_t layer) const {
    return blocks[static_cast<std::size_t>(layer + 1)];
  }
  /// Index in layer_kinds().
  std::size_t kind_of(std::int64_t layer) const { return block_of(layer).kind - 1; }
  const LayerDescription& layer(std::int64_t number) const { return kinds[block_of(number).kind]; }
  /// Number of layers of each kind in a range.
  std::vector<std::int64_t> count_kinds(const layout::Slice& layers) const;

  std::int64_t parameters() const;
  /// Multiplications of a token with elements of the layers' matrices; matrices of shared layers
  /// count in each layer.
  double layer_products() const;
  /// Multiplications of a token with the head's matrix elements, averaged over a sample's tokens,
  /// of which the head may see only some.
  double head_products() const;
  /// Part of head_products() that computes logits.
  double logit_products() const;
  /// Multiplications of a token with keys and values, in all layers: L h s with a causal mask (half
  /// of the full square), else 2 L h s.
  double attention_products() const;
  /// Multiplications of a token with elements of frozen matrices, whose gradients are not computed:
  /// in the layers and the head, and in the head alone.
  double frozen_products() const;
  double frozen_head_products() const;
  /// Model FLOPs of a training step per token (recomputation not counted): 6 per product of layers,
  /// head and attention, less 2 per frozen product.
  double model_flops_per_token() const;
  /// model_flops_per_token() as if no array were frozen.
  double all_flops_per_token() const;
};

/// The architecture of a deck's model. Initial output projections are scaled by 1/√(2L) (Radford et
/// al. 2019, GPT-2).
Architecture describe(const deck::ModelConfig& model);

std::map<std::string, ArraySpec> arrays_by_name(const deck::ModelConfig& model);

}  // namespace trireme::architecture
