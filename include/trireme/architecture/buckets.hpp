#pragma once

#include <trireme/architecture/bucket_cut.hpp>

#include <cstdint>
#include <vector>

namespace trireme::architecture {

/// A range of an arena that one message sums (gradients) or gathers (weights) over the data axis.
struct Bucket {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  Stage stage = 0;
  /// Blocks with elements in the bucket, as in block_of(); none if it holds shared layers. The
  /// bucket is complete after the backward passes of all these blocks.
  std::vector<std::int64_t> blocks;
  /// Bounds of the parts: data rank r owns [bounds[r], bounds[r + 1]).
  std::vector<std::int64_t> bounds;
  bool shared = false;  ///< holds shared layers: complete after all backward passes of the rank
  /// Place in the order in which forward passes first read the bucket's weights.
  std::int64_t read_order = 0;
};

/// Buckets of about `most_elements` elements, but at least one block of the norm; buckets do not
/// split these blocks. A bucket belongs to one stage, and holds only split or only replicated
/// arrays. Each token table of tied embeddings has separate buckets. Buckets depend only on the
/// offsets of arrays: all ranks of the data axis have the same buckets, all tensor ranks cut
/// replicated arrays at the same elements, and both gradients of a tied table are cut at the same
/// elements. Sorted in the order in which backward passes complete them, from the end of each
/// range. `data_ranks`: number of ranks that own parts of each bucket.
std::vector<Bucket> gradient_buckets(const BucketCut& cut);
inline std::vector<Bucket> gradient_buckets(const Architecture& architecture, const Shard& shard,
                                            const std::vector<RankArray>& arrays,
                                            const Placement& placement, std::int64_t most_elements,
                                            int data_ranks) {
  return gradient_buckets({architecture, shard, arrays, placement, most_elements, data_ranks});
}

}  // namespace trireme::architecture
