#pragma once

#include <trireme/architecture/buckets.hpp>

#include <cstdint>
#include <vector>

namespace trireme::architecture {

/// Whether an array of weights has a state array of the optimizer.
bool has_state(const deck::OptimizerConfig& optimizer, const rules::StateArray& state,
               const RankArray& array);

/// Numbers of state arrays of the shape of the weights: for all arrays, and only for those that the
/// rule does not update as matrices.
struct StateCounts {
  std::int64_t all = 0;
  std::int64_t others = 0;
};
StateCounts state_counts(const deck::OptimizerConfig& optimizer);

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
  /// Elements of an arena for the arrays that the rule does not update as matrices, which are
  /// first.
  std::int64_t others = 0;

  /// Whether this rank owns element `at` of the arena of the weights.
  bool owns(std::int64_t at) const;
};

/// State of all trained arrays, at the offsets of the weights. If `matrices` is not none, arrays
/// are contiguous, and those with matrices (rules::as_matrices) are last.
StatePlacement whole_state(const std::vector<RankArray>& arrays, const Placement& placement,
                           rules::Matrices matrices = rules::Matrices::none);

/// StatePlacement::elements of whole_state() with matrices, computed without a list of blocks.
/// Arrays with matrices of `without` do not count.
std::int64_t whole_state_elements(const std::vector<RankArray>& arrays,
                                  rules::Matrices without = rules::Matrices::none);

/// State that data rank `data_rank` owns: its part of each bucket. `matrices` as in whole_state().
StatePlacement owned_state(const std::vector<RankArray>& arrays, const Placement& placement,
                           const std::vector<Bucket>& buckets, int data_rank,
                           rules::Matrices matrices = rules::Matrices::none);

/// Blocks of frozen arrays that data rank `data_rank` owns: its part of each bucket of the weights,
/// if weights are divided.
std::vector<StateBlock> owned_frozen(const std::vector<RankArray>& arrays,
                                     const Placement& placement, const std::vector<Bucket>& buckets,
                                     int data_rank);

/// For each data rank, the total elements of the blocks of owned_state(), each block rounded up to
/// a multiple of `unit_elements`, which must divide a block of the norm. `counted_only`: only
/// blocks that the rank counts; `frozen`: blocks of owned_frozen() instead. Arrays with matrices of
/// `without` do not count. Throws a UsageError if there are too many blocks to enumerate.
std::vector<std::int64_t> owned_sums(const BucketCut& cut, std::int64_t unit_elements,
                                     bool counted_only, bool frozen = false,
                                     rules::Matrices without = rules::Matrices::none);

/// Elements of an arena of the state on the data rank that owns the most elements. `without` as in
/// owned_sums().
std::int64_t most_state_elements(const BucketCut& cut,
                                 rules::Matrices without = rules::Matrices::none);

}  // namespace trireme::architecture
