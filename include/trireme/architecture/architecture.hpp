#pragma once

#include <trireme/architecture/operation.hpp>
#include <trireme/base/types.hpp>
#include <trireme/deck/config.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

/// The only description of a model; plan/ derives bytes and FLOPs from it, model/ memory and
/// initialisation.
namespace trireme::architecture {

struct Architecture {
  deck::ModelConfig model;
  std::vector<ArraySpec> arrays;  ///< in registry order; array numbers are positions in this list
  LayerDescription embedding;     ///< operations before the layers
  LayerDescription layer;         ///< operations of each layer
  LayerDescription head;          ///< operations after the layers
  bool has_frozen = false;        ///< whether any array is frozen

  std::int64_t parameters() const;
  /// Elements of the layers' matrices. Each is multiplied with each token once.
  std::int64_t layer_parameters() const;
  /// Multiplications of a token with the head's matrix elements, averaged over a sample's tokens,
  /// of which the head may see only some.
  double head_products() const;
  /// Part of head_products() that computes logits.
  double logit_products() const;
  /// Multiplications of a token with keys and values, in all layers: L h s with a causal mask (half
  /// of the full square), else 2 L h s.
  double attention_products() const;
  /// Multiplications of a token with elements of frozen matrices, whose gradients are not computed.
  double frozen_products() const;
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
