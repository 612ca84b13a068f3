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
  /// The part of `n` elements that this tensor rank holds; cut at multiples of `unit`, which
  /// divides n.
  layout::Slice part(std::int64_t n, std::int64_t unit = 1) const {
    const layout::Slice units = layout::split(n / unit, tensor_size, tensor_rank);
    return {units.offset * unit, units.extent * unit};
  }
};

/// The shard at a place of the process grid: stage s lives on pipeline rank s mod pipeline_size,
/// which has `chunks` of them.
Shard make_shard(const Architecture& architecture, int pipeline_size, int chunks, int pipeline_rank,
                 int tensor_size, int tensor_rank);

/// Everything on one rank.
Shard whole_model(const Architecture& architecture);

/// A slice of a global array that a rank holds.
struct LocalArray {
  std::size_t number = 0;  ///< in Architecture::arrays
  Stage stage = 0;         ///< of this rank, whose passes use it
  std::vector<std::int64_t> offset;
  std::vector<std::int64_t> extent;
  /// Cut along the tensor axis; otherwise every tensor rank holds the same.
  bool split = false;
  /// The token table of tied embeddings again, on the last stage where that is not on the rank of
  /// the first: the same weights, the gradient of the logits.
  bool copy = false;

  std::int64_t elements() const;
};

/// What a rank holds, in registry order; a copy comes last.
std::vector<LocalArray> local_arrays(const Architecture& architecture, const Shard& shard);

}  // namespace trireme::architecture
