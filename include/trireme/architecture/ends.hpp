#pragma once

#include <trireme/architecture/local_sizes.hpp>
#include <trireme/architecture/operation.hpp>

#include <cstdint>
#include <string_view>

namespace trireme::architecture {

/// The embedding and the head as lists of operations; arrays, memory, messages, FLOPs and the
/// fields of a batch are derived from them. None of their steps is recomputed. A gradient
/// overwrites its tensor, unless the list has a separate tensor for it such as "dlogits".
LayerDescription describe_embedding(const deck::ModelConfig& model);
/// The embedding without the look-up of tokens: its part of the first stage if all pipeline ranks
/// share the vocabulary.
LayerDescription without_vocabulary(LayerDescription embedding);

/// Time at which the head's gradient is computed.
enum class HeadGradient : std::uint8_t {
  /// In the forward pass, by blocks of rows: only one block of logits exists at a time.
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
/// with_losses if the last stage's backward pass directly follows its forward pass: the order of
/// the head's passes then only affects memory. With gpipe, other forward passes come between them,
/// and other stages would wait for the head's three passes: see [parallel] recompute.
HeadGradient head_gradient(const deck::ParallelConfig& parallel);
/// Name of the tensor that [parallel] recompute = "auto" chooses for HeadGradient::again.
inline constexpr std::string_view logits_name = "logits";

/// The head. For a gradient in the backward pass, the slot keeps all its operands.
LayerDescription describe_head(const deck::ModelConfig& model,
                               HeadGradient gradient = HeadGradient::with_losses);

/// A rank's part of the logits, if all pipeline ranks share the vocabulary: describe_head() is then
/// only the final norm, and describe_embedding() the part of the first stage.
LayerDescription describe_shared_logits(const deck::ModelConfig& model, HeadGradient gradient);

/// Whether the tensor uses another tensor's memory.
bool shares_memory(const LayerDescription& part, const Tensor& tensor, Bytes element,
                   Bytes accumulate);
/// Total bytes of the tensors with this home.
Bytes bytes_at(Home home, const LayerDescription& part, const LocalSizes& sizes, Bytes element,
               Bytes accumulate);

}  // namespace trireme::architecture
