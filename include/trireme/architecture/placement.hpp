#pragma once

#include <trireme/architecture/shard.hpp>

#include <cstdint>
#include <vector>

namespace trireme::architecture {

/// Offset of each array of a rank in the arenas of weights and gradients, in elements. Order:
/// arrays that the tensor axis splits, then arrays that every tensor rank holds whole; in both
/// groups, arrays of shared layers are last. Frozen arrays follow: only the weight arena has them.
/// The order is the same on all tensor ranks.
struct Placement {
  std::vector<std::int64_t> offset;  ///< per local array
  std::int64_t replicated = 0;       ///< first element after the split arrays
  std::int64_t elements = 0;         ///< elements of the weight arena
  std::int64_t tied_offset = 0;      ///< offset of the second gradient of tied embeddings
  /// Elements of the second gradient; 0 unless this rank has both tables of tied embeddings.
  std::int64_t tied_elements = 0;
  std::int64_t gradient_elements = 0;  ///< `trained` plus the tied gradient, if any
  std::int64_t trained = 0;            ///< elements before the frozen arrays
};

/// Arrays begin at multiples of 32 elements (64 bytes of a two-byte type), except arrays that
/// follow the previous array directly.
Placement place(const Architecture& architecture, const Shard& shard,
                const std::vector<RankArray>& arrays);

/// Range of the arena with the trained arrays of a stage that all tensor ranks hold whole, with or
/// without `partial_gradient`. Arrays of shared layers are not included.
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

/// Elements of a block of logits: in fp32, 64 MiB on a host and 512 MiB on a device. Each block
/// reads and writes the gradient of the output matrix once.
inline constexpr std::int64_t host_logit_elements = std::int64_t{1} << 24;
inline constexpr std::int64_t device_logit_elements = std::int64_t{1} << 27;

/// Rows of logits that are computed at a time: the largest multiple of 64 with at most
/// `block_elements` elements, but at least 64, and at most `tokens`.
std::int64_t logit_block_rows(std::int64_t tokens, std::int64_t vocabulary,
                              std::int64_t block_elements);

}  // namespace trireme::architecture
