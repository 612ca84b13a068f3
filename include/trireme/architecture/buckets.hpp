#pragma once

#include <trireme/architecture/placement.hpp>

#include <cstdint>
#include <vector>

namespace trireme::architecture {

/// A run of gradient elements that is summed over the data axis by one message.
struct Bucket {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  Stage stage = 0;
  /// Those that have elements in it, −1: the embedding, L: the head. Complete when all of them have
  /// been passed backward.
  std::vector<std::int64_t> layers;
  /// Where it is cut for the distributed optimizer: data rank r owns [bounds[r], bounds[r + 1]).
  std::vector<std::int64_t> bounds;
  bool shared = false;  ///< of shared layers: complete when all backward passes of the rank are
};

/// Buckets of about `most_elements`, and never less than one block of the norm, whose blocks they
/// do not cut; by position alone, within one stage, within the arrays that the tensor axis cuts or
/// does not, and each token table of tied embeddings by itself: so every rank of the data axis cuts
/// alike, replicated arrays are cut alike on all tensor ranks, and both gradients of a tied table
/// are. From each run's end backward, as backward passes complete them. `data_ranks` for the
/// bounds.
std::vector<Bucket> gradient_buckets(const Architecture& architecture, const Shard& shard,
                                     const std::vector<LocalArray>& arrays,
                                     const Placement& placement, std::int64_t most_elements,
                                     int data_ranks);

}  // namespace trireme::architecture
