#pragma once

#include <trireme/architecture/shard.hpp>
#include <trireme/layout/share.hpp>

#include <cstdint>
#include <vector>

namespace trireme::architecture {

/// Alignment of parts in the host copy of a background checkpoint: a page, so that their writes can
/// bypass the page cache.
inline constexpr Bytes saved_alignment = 4096;
inline constexpr Bytes saved_bytes(Bytes bytes) {
  return (bytes + saved_alignment - 1) / saved_alignment * saved_alignment;
}

/// A part of a rank's local array that this rank writes to checkpoints.
struct SavedPart {
  std::size_t local = 0;             ///< index in the list of local arrays
  std::vector<std::int64_t> offset;  ///< in the global array
  std::vector<std::int64_t> extent;
  std::int64_t first = 0;  ///< element of the local array's memory at which the part begins

  std::int64_t elements() const;
};

/// Parts that rank `data_rank` of `data_size` replicas of a shard writes, in the order of the local
/// arrays. Ranks that hold equal values share the writing: all ranks together write every element
/// of every array once.
std::vector<SavedPart> saved_parts(const Architecture& architecture, const Shard& shard,
                                   const std::vector<RankArray>& arrays, int data_size,
                                   int data_rank);

/// For each data rank, the total elements of the parts that it writes, each part rounded up to a
/// multiple of `unit_elements`. Counts frozen arrays if `frozen`, otherwise trained arrays.
std::vector<std::int64_t> saved_sums(const Architecture& architecture, const Shard& shard,
                                     const std::vector<RankArray>& arrays, int data_size,
                                     std::int64_t unit_elements, bool frozen = false);

}  // namespace trireme::architecture
