#pragma once

#include <trireme/architecture/bucket_cut.hpp>

#include <cstdint>
#include <vector>

namespace trireme::architecture {

/// A range of an arena that one message sums (gradients) or gathers (weights) over the replicas.
struct Bucket {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  Stage stage = 0;
  /// Blocks with elements in the bucket, as in block_of(); none if it holds shared layers. The
  /// bucket is complete after the backward passes of all these blocks.
  std::vector<std::int64_t> blocks;
  /// Bounds of the parts: data rank r owns the part o = r / expert_ranks, [bounds[o],
  /// bounds[o + 1]).
  std::vector<std::int64_t> bounds;
  bool shared = false;  ///< holds shared layers: complete after all backward passes of the rank
  /// For experts that replicas divide: number of consecutive ranks with different experts.
  int expert_ranks = 1;
  /// Place in the order in which forward passes first read the bucket's weights.
  std::int64_t read_order = 0;

  bool of_experts() const { return expert_ranks > 1; }
  std::size_t owner(int data_rank) const {
    return static_cast<std::size_t>(data_rank / expert_ranks);
  }
};

/// Buckets of about `most_elements` elements, from the end of each group of ranges
/// (BucketCut::visit_groups()). Buckets do not split blocks of the norm. A bucket belongs to one
/// stage, and holds only split or only replicated arrays. All replicas have the same buckets, and
/// all tensor ranks cut replicated arrays at the same elements. `data_ranks`: number of ranks that
/// own parts of each bucket.
std::vector<Bucket> gradient_buckets(const BucketCut& cut);
inline std::vector<Bucket> gradient_buckets(const Architecture& architecture, const Shard& shard,
                                            const std::vector<RankArray>& arrays,
                                            const Placement& placement, std::int64_t most_elements,
                                            int data_ranks) {
  return gradient_buckets({architecture, shard, arrays, placement, most_elements, data_ranks});
}

}  // namespace trireme::architecture
