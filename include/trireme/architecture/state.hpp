#pragma once

#include <trireme/architecture/buckets.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::architecture {

/// Names of the state arrays of an optimizer. Each state array has the shape of the weights: for
/// weight w, a checkpoint stores the array as "optimizer.<name>.w".
std::vector<std::string> state_arrays(const deck::OptimizerConfig& optimizer);
/// Number of state arrays of a weight array: the first entries of state_arrays(). With Muon, hidden
/// matrices have no second moment.
std::size_t state_arrays_of(const deck::OptimizerConfig& optimizer, const RankArray& array);

/// Number of norms per array that an optimizer step needs in addition to the gradient's norm: the
/// weights' norm (LARS and LAMB) and the norm of the update's direction (LAMB).
std::int64_t trust_norms(const deck::OptimizerConfig& optimizer);

/// A block of a local array whose optimizer state a rank holds, contiguous in the array's memory.
struct StateBlock {
  std::size_t local = 0;             ///< index in the list of local arrays
  std::vector<std::int64_t> offset;  ///< in the global array
  std::vector<std::int64_t> extent;
  std::int64_t first = 0;  ///< element of the local array's memory at which the block begins
  std::int64_t state = 0;  ///< element of the state's arenas at which the block begins
  bool counted = true;     ///< see Piece; true if the block is a whole array

  std::int64_t elements() const;
};

/// Optimizer state of a rank: for all its trained arrays, or with the distributed optimizer
/// (Rajbhandari et al. 2020, "ZeRO", stage 1) for its part of every bucket.
struct StatePlacement {
  std::vector<StateBlock> blocks;  ///< in the order of the local arrays
  std::vector<layout::Slice>
      owned;                  ///< ranges of the arena of the weights, ascending, not adjacent
  std::int64_t elements = 0;  ///< elements of an arena of the state
  bool whole = true;          ///< covers all trained arrays
  /// Elements of each arena after the first arena: with Muon, without hidden matrices.
  std::int64_t second = 0;

  /// Whether this rank owns element `at` of the arena of the weights.
  bool owns(std::int64_t at) const;
};

/// State of all trained arrays, at the offsets of the weights. With Muon, the arrays are
/// contiguous, and hidden matrices are last.
StatePlacement whole_state(const std::vector<RankArray>& arrays, const Placement& placement,
                           OptimizerKind kind = OptimizerKind::adamw);

/// StatePlacement::elements of whole_state() with Muon, computed without a list of blocks.
/// `matrices`: whether hidden matrices count.
std::int64_t whole_muon_elements(const std::vector<RankArray>& arrays, bool matrices);

/// State that data rank `data_rank` owns: its part of each bucket.
StatePlacement owned_state(const std::vector<RankArray>& arrays, const Placement& placement,
                           const std::vector<Bucket>& buckets, int data_rank,
                           OptimizerKind kind = OptimizerKind::adamw);

/// Blocks of frozen arrays that data rank `data_rank` owns: its part of each bucket of the weights,
/// if weights are divided.
std::vector<StateBlock> owned_frozen(const std::vector<RankArray>& arrays,
                                     const Placement& placement, const std::vector<Bucket>& buckets,
                                     int data_rank);

/// For each data rank, the total elements of the blocks of owned_state(), each block rounded up to
/// a multiple of `unit_elements`, which must divide a block of the norm. `counted_only`: only
/// blocks that the rank counts; `frozen`: blocks of owned_frozen() instead; `matrices`: whether
/// hidden matrices count. Throws a UsageError if there are too many blocks to enumerate.
std::vector<std::int64_t> owned_sums(const BucketCut& cut, std::int64_t unit_elements,
                                     bool counted_only, bool frozen = false, bool matrices = true);

/// Elements of an arena of the state on the data rank that owns the most elements. `matrices`:
/// whether hidden matrices count.
std::int64_t most_state_elements(const BucketCut& cut, bool matrices = true);

}  // namespace trireme::architecture
