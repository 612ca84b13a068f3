#pragma once

#include <trireme/architecture/operation.hpp>
#include <trireme/base/types.hpp>
#include <trireme/deck/config.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

/// The one description of a model, read by plan/ (bytes, FLOPs) and by model/ (memory,
/// initialisation).
namespace trireme::architecture {

struct Architecture {
  deck::ModelConfig model;
  std::vector<ArraySpec> arrays;  ///< in registry order; array numbers are positions in this list
  LayerDescription embedding;     ///< the operations before the layers
  LayerDescription layer;         ///< of each layer
  LayerDescription head;          ///< after the layers
  bool has_frozen = false;        ///< whether any array is frozen

  std::int64_t parameters() const;
  /// Elements of the layers' matrices, each of which a token is multiplied with.
  std::int64_t layer_parameters() const;
  /// Products of a token with the head's matrix elements: the mean over the tokens of a sample, of
  /// which the head may see a few.
  double head_products() const;
  /// Those of them that compute logits.
  double logit_products() const;
  /// Products of a token with keys and with values, in all layers: L h s with a causal mask (half
  /// of the full square), else 2 L h s.
  double attention_products() const;
  /// Products of a token with elements of frozen matrices, whose gradients are not computed.
  double frozen_products() const;
  /// Model FLOPs of a training step (recomputation not counted): 6 times these three, less 2 per
  /// frozen product.
  double model_flops_per_token() const;
  /// The same if everything were trained.
  double all_flops_per_token() const;
};

/// The arrays of the model that the deck describes; initialisation with output projections scaled
/// by 1/√(2L) (Radford et al. 2019, GPT-2).
Architecture describe(const deck::ModelConfig& model);

std::map<std::string, ArraySpec> arrays_by_name(const deck::ModelConfig& model);

}  // namespace trireme::architecture
