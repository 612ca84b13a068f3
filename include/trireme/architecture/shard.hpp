#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/base/types.hpp>
#include <trireme/layout/split.hpp>

#include <cstdint>
#include <vector>

namespace trireme::architecture {

/// The layers of each of `stages` pipeline stages: contiguous, every layer once, so that the stage
/// with the most FLOPs has as few as possible. The logits count for the last stage, which therefore
/// takes fewer layers where the vocabulary is large; a look-up costs nothing. With more stages than
/// layers some stages have none.
std::vector<layout::Slice> partition(const Architecture& architecture, int stages);

/// What one rank holds of the model: its pipeline stages, and its part of what the tensor axis
/// cuts.
struct Shard {
  std::vector<layout::Slice> stage_layers;  ///< of all stages of the model
  std::vector<Stage> stages;                ///< those of this rank, ascending
  int tensor_rank = 0;
  int tensor_size = 1;

  Stage last_stage() const { return static_cast<Stage>(stage_layers.size()) - 1; }
  bool holds(Stage stage) const;
  bool has_embedding() const { return holds(0); }
  bool has_head() const { return holds(last_stage()); }
  /// The stage of a layer; −1 (before the layers) is the first stage, L (after them) the last.
  Stage stage_of(std::int64_t layer) const;
  /// The part of `n` elements that this tensor rank holds.
  layout::Slice part(std::int64_t n) const { return layout::split(n, tensor_size, tensor_rank); }
  /// Of `n` groups of `group` elements, those of which this rank's part of the elements has any.
  layout::Slice groups(std::int64_t n, std::int64_t group) const;
  /// The tensor ranks that hold group `i` of these: one, or neighbours.
  layout::Slice holders(std::int64_t n, std::int64_t group, std::int64_t i) const;
};

/// The shard at a place of the process grid: stage s lives on pipeline rank s mod pipeline_size,
/// which has `chunks` of them.
Shard make_shard(const Architecture& architecture, int pipeline_size, int chunks, int pipeline_rank,
                 int tensor_size, int tensor_rank);

/// Everything on one rank.
Shard whole_model(const Architecture& architecture);

/// A block of a local array, contiguous in its memory, that the same tensor ranks hold.
struct Piece {
  std::vector<std::int64_t> offset;  ///< in the global array
  std::vector<std::int64_t> extent;
  std::int64_t first = 0;  ///< element of the local array's memory at which it begins
  layout::Slice holders;   ///< tensor ranks
  /// This rank is the one of its holders that adds it to norms and writes its optimizer state.
  bool counted = true;

  std::int64_t elements() const;
};

/// A slice of a global array that a rank holds.
struct LocalArray {
  std::size_t number = 0;  ///< in Architecture::arrays
  Stage stage = 0;         ///< of this rank, whose passes use it
  std::vector<std::int64_t> offset;
  std::vector<std::int64_t> extent;
  /// Cut along the tensor axis; otherwise every tensor rank holds the same.
  bool split = false;
  /// As ArraySpec: the gradients of the tensor ranks are parts of a sum.
  bool partial_gradient = false;
  /// The token table of tied embeddings again, on the last stage where that is not on the rank of
  /// the first: the same weights, the gradient of the logits.
  bool copy = false;
  /// All of it, in the order of its memory: one piece, unless tensor ranks share a part of it.
  std::vector<Piece> pieces;

  std::int64_t elements() const;
};

/// The heads of keys and values that more than one of `tensor_size` ranks holds, ascending: groups
/// of query heads that a cut goes through. A rank holds at most two of them, and these follow one
/// another here, since those between its first and its last group are wholly its own.
std::vector<std::int64_t> shared_heads(const deck::ModelConfig& model, int tensor_size);

/// What a rank holds, in registry order; a copy comes last.
std::vector<LocalArray> local_arrays(const Architecture& architecture, const Shard& shard);

}  // namespace trireme::architecture
