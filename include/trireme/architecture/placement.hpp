#pragma once

#include <trireme/architecture/shard.hpp>

#include <cstdint>
#include <vector>

namespace trireme::architecture {

/// Offset of each array of a rank in the weight, gradient and optimizer arenas, in elements; equal
/// in all arenas. Order: arrays that the tensor axis splits; arrays that every tensor rank holds
/// whole; whole arrays whose gradients are always partial sums. For each of the last two groups,
/// one message per stage sums the gradients over the tensor axis. The order is the same on all
/// tensor ranks, so that data-parallel sums are split at the same elements. Arrays of shared layers
/// are separate, because their gradients are also summed over the pipeline. Frozen arrays are last:
/// only the weight arena has them.
struct Placement {
  std::vector<std::int64_t> offset;  ///< per local array
  std::int64_t replicated = 0;       ///< first element after the split arrays
  std::int64_t elements = 0;         ///< elements of the weight arena
  std::int64_t tied_offset = 0;      ///< offset of the second gradient of tied embeddings
  /// Elements of the second gradient; 0 unless this rank has both tables of tied embeddings.
  std::int64_t tied_elements = 0;
  std::int64_t gradient_elements = 0;  ///< `trained` plus the tied gradient, if any
  std::int64_t trained = 0;            ///< elements of the optimizer arenas: no frozen arrays
};

/// Arrays begin at multiples of 32 elements (64 bytes of a two-byte type), except arrays that
/// follow the previous array directly.
Placement place(const Architecture& architecture, const Shard& shard,
                const std::vector<RankArray>& arrays);

/// Range of the arena with the trained arrays of a stage that all tensor ranks hold whole: either
/// the arrays with `partial_gradient`, or the arrays without it. Arrays of shared layers are not
/// included.
layout::Slice replicated_part(const std::vector<RankArray>& arrays, const Placement& placement,
                              Stage stage, bool partial_gradient);

/// A range of the arena with trained arrays of shared layers: equal on all pipeline ranks except
/// for its offset.
struct SharedPart {
  layout::Slice run;
  bool split = false;
  bool partial_gradient = false;
};
std::vector<SharedPart> shared_parts(const std::vector<RankArray>& arrays,
                                     const Placement& placement);

/// Elements of a block of logits. Each block reads and writes the gradient of the output matrix
/// once. A host's caches hold about 64 MiB of fp32 logits; on a device, with 512 MiB of logits,
/// this traffic is small compared to the products.
inline constexpr std::int64_t host_logit_elements = std::int64_t{1} << 24;
inline constexpr std::int64_t device_logit_elements = std::int64_t{1} << 27;

/// Rows of logits that are computed at a time: at most `tokens`; a multiple of 64 rows with at most
/// `block_elements` elements, but at least 64 rows. The logits of all tokens are never stored at
/// once. The result depends only on tokens, vocabulary and kind of machine, so that all layouts use
/// the same blocks.
std::int64_t logit_block_rows(std::int64_t tokens, std::int64_t vocabulary,
                              std::int64_t block_elements);

}  // namespace trireme::architecture
