#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/base/types.hpp>
#include <trireme/layout/process_grid.hpp>
#include <trireme/layout/split.hpp>
#include <trireme/layout/stage_map.hpp>
#include <trireme/layout/token_places.hpp>
#include <trireme/rules/rule.hpp>

#include <cstdint>
#include <vector>

namespace trireme::architecture {

/// Layers of each pipeline stage. Stages are contiguous and contain every layer once. The FLOPs of
/// the stages (in a V: of the ranks) are balanced; the last stage includes the head, unless all
/// ranks share the vocabulary. With more stages than layers, some stages are empty. A [parallel]
/// partition sets the stages instead.
std::vector<layout::Slice> partition(const Architecture& architecture,
                                     const deck::ParallelConfig& parallel);

/// Number of layers of the stage with the most layers.
std::int64_t longest_stage(const Architecture& architecture, const deck::ParallelConfig& parallel);

/// One rank's part of the model: its pipeline stages, its part of the arrays that the tensor axis
/// splits, and its tokens of each sample.
struct Shard {
  std::vector<layout::Slice> stage_layers;  ///< layers of all stages of the model
  std::vector<Stage> stages;                ///< stages of this rank, ascending
  int tensor_rank = 0;
  int tensor_size = 1;
  int context_rank = 0;
  int context_size = 1;
  int expert_rank = 0;        ///< number of this replica among those that divide the experts
  int expert_size = 1;        ///< replicas that divide the experts
  int expert_batches = 1;     ///< see ParallelConfig::expert_batches()
  int vocabulary_stages = 1;  ///< pipeline ranks that share the vocabulary; 1: not shared

  Stage last_stage() const { return static_cast<Stage>(stage_layers.size()) - 1; }
  bool holds(Stage stage) const;
  /// Whether the next stage exists and is also on this rank.
  bool hands_over(Stage stage) const { return stage < last_stage() && holds(stage + 1); }
  bool has_embedding() const { return holds(0); }
  bool has_head() const { return holds(last_stage()); }
  /// Stage of a block (Architecture::blocks): the embedding is in the first stage, and the head in
  /// the last stage.
  Stage stage_of(std::int64_t block) const;
  bool shares_vocabulary() const { return vocabulary_stages > 1; }
  /// This rank's part of the ids of the vocabulary, or of any `n` elements divided in the same way.
  layout::Slice vocabulary_part(std::int64_t n) const {
    const int stage = shares_vocabulary() && !stages.empty() ? stages.front() : 0;
    return layout::split(n, vocabulary_stages * tensor_size, stage * tensor_size + tensor_rank);
  }
  /// This rank's part of a dimension of `n` indices. Of experts, the parts of the tensor ranks of a
  /// replica are consecutive.
  layout::Slice part_of(const ArrayCut& cut, std::int64_t n) const;
  /// This tensor rank's part of `n` elements.
  layout::Slice part(std::int64_t n) const { return layout::split(n, tensor_size, tensor_rank); }
  /// This context rank's tokens of each sample of `sequence` tokens.
  layout::TokenPlaces places(std::int64_t sequence) const {
    return layout::token_places(sequence, context_size, context_rank);
  }
  /// This context rank's part of `n` elements.
  layout::Slice context_part(std::int64_t n) const {
    return layout::split(n, context_size, context_rank);
  }
  /// Groups with elements in this tensor rank's part, among `n` groups of `group` elements each.
  layout::Slice groups(std::int64_t n, std::int64_t group) const {
    return layout::split_groups(n, group, tensor_size, tensor_rank);
  }
  /// Tensor ranks that hold group `i`, with `n` and `group` as in groups(): one rank, or several
  /// neighbours.
  layout::Slice holders(std::int64_t n, std::int64_t group, std::int64_t i) const;
};

/// Shard at a position of the process grid.
Shard make_shard(const Architecture& architecture, const deck::ParallelConfig& parallel,
                 const layout::Coordinates& at);
Shard make_shard(const Architecture& architecture, const deck::ParallelConfig& parallel,
                 int pipeline_rank, int tensor_rank);

/// Shard of a single rank that holds the whole model.
Shard whole_model(const Architecture& architecture);

/// A block of a local array, contiguous in the array's memory, that the same tensor ranks hold.
struct Piece {
  std::vector<std::int64_t> offset;  ///< in the global array
  std::vector<std::int64_t> extent;
  std::int64_t first = 0;  ///< element of the local array's memory at which the piece begins
  layout::Slice holders;   ///< tensor ranks that hold the piece
  /// Whether this rank is the one holder that adds the piece to norms and writes its optimizer
  /// state.
  bool counted = true;

  std::int64_t elements() const;
};

/// A slice of a global array that a rank holds.
struct RankArray {
  std::size_t number = 0;  ///< index in Architecture::arrays
  Stage stage = 0;         ///< stage of this rank whose passes use the array
  /// Whether the tensor axis splits the array; otherwise every tensor rank holds all of it.
  bool split = false;
  /// See ArraySpec; false for split arrays.
  bool partial_gradient = false;
  /// Whether another pipeline rank holds the original, with the same weights. True for the token
  /// table of tied embeddings on the last stage, if the first stage is on another rank, and for
  /// arrays of shared layers whose first layer is on another rank.
  bool copy = false;
  bool shared = false;         ///< see ArraySpec
  bool of_vocabulary = false;  ///< part of a table that all pipeline ranks share
  /// Whether the replicas of an expert group have different slices: see Shard::expert_size.
  bool of_experts = false;
  std::vector<std::int64_t> offset;
  std::vector<std::int64_t> extent;
  /// The pieces of the array in the order of its memory: one piece, unless only some tensor ranks
  /// share a part of it.
  std::vector<Piece> pieces;
  bool frozen = false;                             ///< see ArraySpec
  rules::Matrices matrix = rules::Matrices::none;  ///< see rules::as_matrices()

  std::int64_t elements() const;
};

/// Heads of keys and values that more than one of `tensor_size` ranks holds, ascending: their
/// groups of query heads are split between ranks. A rank holds at most two such heads, which are
/// adjacent in the list.
std::vector<std::int64_t> shared_heads(const deck::ModelConfig& model, int tensor_size);

/// Arrays of a rank in registry order. The copy of a tied token table, if any, is the last array.
std::vector<RankArray> rank_arrays(const Architecture& architecture, const Shard& shard);

}  // namespace trireme::architecture
