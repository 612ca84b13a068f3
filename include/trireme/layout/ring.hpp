#pragma once

#include <trireme/layout/token_places.hpp>

#include <cstdint>
#include <vector>

/// Ring attention (Liu et al. 2023, arXiv 2310.01889): the queries and keys of each step.
namespace trireme::layout {

/// A chunk of a rank's queries, and a chunk of keys.
struct ChunkPair {
  Chunk queries, keys;
  std::int64_t query_row = 0;  ///< row of the rank's tokens at which `queries` begin
  std::int64_t key_row = 0;    ///< row of the key owner's tokens at which `keys` begin
  bool same = false;           ///< queries and keys are the same tokens
  std::int64_t seen = 0;       ///< number of visible (query, key) pairs
};

struct AttentionRing {
  std::int64_t sequence = 1;
  int ranks = 1;
  bool causal = true;
  std::int64_t window = 0;  ///< tokens that a query sees, including its own; 0: all

  /// The rank that owns the keys that `rank` uses in step `step` of the ring. After each step,
  /// blocks of keys and values move to the next rank.
  int owner(int rank, int step) const { return (rank - step + ranks) % ranks; }
  /// Pairs of chunks with visible keys in step `step`, in the order of computation. In step 0, each
  /// chunk of queries is paired first with its own tokens as keys, so that each query sees at least
  /// one token.
  std::vector<ChunkPair> pairs(int rank, int step) const;
};

}  // namespace trireme::layout
