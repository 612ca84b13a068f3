#pragma once

#include <trireme/architecture/bucket_cut.hpp>

#include <cstdint>
#include <vector>

namespace trireme::architecture {

/// A range of gradient elements that one message sums over the data axis.
struct Bucket {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  Stage stage = 0;
  /// Layers with elements in the bucket; −1: the embedding, L: the head. The bucket is complete
  /// after the backward passes of all these layers.
  std::vector<std::int64_t> layers;
  /// Bounds of the distributed optimizer: data rank r owns [bounds[r], bounds[r + 1]).
  std::vector<std::int64_t> bounds;
  bool shared = false;  ///< holds shared layers: complete after all backward passes of the rank
};

/// Buckets of about `most_elements`, at least one block of the norm, whose blocks they do not
/// split. A bucket belongs to one stage and holds either split or replicated arrays; each token
/// table of tied embeddings has separate buckets. Buckets depend on positions only: all ranks of
/// the data axis have the same buckets, all tensor ranks split replicated arrays equally, and both
/// gradients of a tied table are split equally. Sorted in the order in which backward passes
/// complete them, from the end of each range. `data_ranks`: number of ranks for the bounds.
std::vector<Bucket> gradient_buckets(const BucketCut& cut);
inline std::vector<Bucket> gradient_buckets(const Architecture& architecture, const Shard& shard,
                                            const std::vector<LocalArray>& arrays,
                                            const Placement& placement, std::int64_t most_elements,
                                            int data_ranks) {
  return gradient_buckets({architecture, shard, arrays, placement, most_elements, data_ranks});
}

}  // namespace trireme::architecture
