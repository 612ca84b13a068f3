#pragma once

#include <trireme/layout/token_places.hpp>

#include <cstdint>
#include <vector>

/// The ring of attention (Liu et al. 2023, arXiv 2310.01889): which tokens meet in each of its
/// steps.
namespace trireme::layout {

/// A chunk of the queries of a rank, and a chunk of keys.
struct ChunkPair {
  Chunk queries, keys;
  std::int64_t query_row = 0;  ///< held token of the rank at which `queries` begin
  std::int64_t key_row = 0;    ///< the same of the keys' owner
  bool same = false;           ///< queries and keys are the same tokens
  std::int64_t seen = 0;       ///< pairs of a query and a key that it sees
};

struct AttentionRing {
  std::int64_t sequence = 1;
  int ranks = 1;
  bool causal = true;
  std::int64_t window = 0;  ///< tokens that a query sees, including its own; 0: all

  /// The rank that owns the keys that `rank` uses in step `step`. Blocks move to the next rank.
  int owner(int rank, int step) const { return (rank - step + ranks) % ranks; }
  /// Pairs in which a query sees a key, in the order of computation. Each chunk of queries meets
  /// itself first, of which each query sees itself.
  std::vector<ChunkPair> pairs(int rank, int step) const;
};

}  // namespace trireme::layout
