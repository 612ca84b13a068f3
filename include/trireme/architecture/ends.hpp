#pragma once

#include <trireme/architecture/local_sizes.hpp>
#include <trireme/architecture/operation.hpp>

#include <cstdint>
#include <string_view>

namespace trireme::architecture {

/// The embedding and the head as lists of operations, from which arrays, memory, messages, FLOPs
/// and the fields of a batch are derived. None of their steps is recomputed. A gradient overwrites
/// its tensor, unless the list has a separate tensor for it such as "dlogits".
LayerDescription describe_embedding(const deck::ModelConfig& model);

/// Time at which the head's gradient is computed.
enum class HeadGradient : std::uint8_t {
  /// In the forward pass, by blocks of rows: of the logits only one block exists at a time.
  with_losses,
  /// In the backward pass, from the gradient of all logits, which the slot keeps.
  kept,
  /// In the backward pass, by blocks of rows whose logits are computed again.
  again,
  /// In passes of their own on all pipeline ranks, each with a part of the vocabulary; the softmax
  /// is kept for the table's gradient.
  shared,
  /// The same, but logits are computed again for the table's gradient.
  shared_again
};
constexpr bool shares_logits(HeadGradient g) {
  return g == HeadGradient::shared || g == HeadGradient::shared_again;
}
constexpr bool computes_again(HeadGradient g) {
  return g == HeadGradient::again || g == HeadGradient::shared_again;
}
/// With the losses if the last stage's backward pass follows its forward pass directly: the order
/// of the head's passes then changes the memory only. With gpipe, other forward passes come between
/// them, and other stages would wait for the head's three passes: see [parallel] recompute.
HeadGradient head_gradient(const deck::ParallelConfig& parallel);
/// Name of the tensor that [parallel] recompute = "auto" chooses for HeadGradient::again.
inline constexpr std::string_view logits_name = "logits";

/// In the backward pass, all that it reads is kept in the slot.
LayerDescription describe_head(const deck::ModelConfig& model,
                               HeadGradient gradient = HeadGradient::with_losses);

/// A rank's part of the logits, if all pipeline ranks share the vocabulary: describe_head() is then
/// the final norm alone, and describe_embedding() the part of the first stage.
LayerDescription describe_shared_logits(const deck::ModelConfig& model, HeadGradient gradient);

/// Whether the tensor uses the memory of another one.
bool shares_memory(const LayerDescription& part, const Tensor& tensor, Bytes element,
                   Bytes accumulate);
/// Total bytes of the tensors with this home.
Bytes bytes_at(Home home, const LayerDescription& part, const LocalSizes& sizes, Bytes element,
               Bytes accumulate);

}  // namespace trireme::architecture
