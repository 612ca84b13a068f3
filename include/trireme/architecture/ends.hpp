#pragma once

#include <trireme/architecture/operation.hpp>
#include <trireme/architecture/rank_sizes.hpp>

#include <cstdint>
#include <string_view>

/// The embedding and the head as lists of operations, from which arrays, memory, messages, FLOPs
/// and the fields of a batch are derived.
namespace trireme::architecture {

/// The embedding.
BlockDescription describe_embedding(const deck::ModelConfig& model);
/// The embedding without the look-up of tokens, as in the first stage if all pipeline ranks share
/// the vocabulary.
BlockDescription without_vocabulary(BlockDescription embedding);

/// Time at which the head's gradient is computed.
enum class HeadGradient : std::uint8_t {
  /// In the forward pass, by blocks of rows. Only one block of logits exists at a time.
  with_losses,
  /// In the backward pass, from the gradient of all logits, which the slot keeps.
  kept,
  /// In the backward pass, by blocks of rows whose logits are recomputed.
  again,
  /// In separate passes on all pipeline ranks, each with a part of the vocabulary; the softmax is
  /// kept for the table's gradient.
  shared,
  /// As `shared`, but logits are recomputed for the table's gradient.
  shared_again
};
constexpr bool shares_logits(HeadGradient g) {
  return g == HeadGradient::shared || g == HeadGradient::shared_again;
}
constexpr bool computes_again(HeadGradient g) {
  return g == HeadGradient::again || g == HeadGradient::shared_again;
}
/// with_losses, unless pipeline ranks share the vocabulary, or gpipe runs on several pipeline
/// ranks: other stages would then wait while the forward passes of the head compute gradients.
/// [parallel] recompute decides whether logits are recomputed.
HeadGradient head_gradient(const deck::ParallelConfig& parallel);
/// Name of the tensor that [parallel] recompute = "auto" chooses to recompute the logits.
inline constexpr std::string_view logits_name = "logits";

/// The head. If pipeline ranks share the vocabulary, it has only the final norm.
BlockDescription describe_head(const deck::ModelConfig& model,
                               HeadGradient gradient = HeadGradient::with_losses);

/// A rank's part of the logits, if all pipeline ranks share the vocabulary.
BlockDescription describe_shared_logits(const deck::ModelConfig& model, HeadGradient gradient);

/// Whether the tensor uses another tensor's memory.
bool shares_memory(const BlockDescription& part, const Tensor& tensor, Bytes element,
                   Bytes accumulate);
/// Total bytes of the tensors with home `home`. Tensors in the memory of another tensor do not
/// count.
Bytes bytes_at(Home home, const BlockDescription& part, const RankSizes& sizes, Bytes element,
               Bytes accumulate);

}  // namespace trireme::architecture
