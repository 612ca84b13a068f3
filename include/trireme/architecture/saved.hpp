#pragma once

#include <trireme/architecture/shard.hpp>
#include <trireme/layout/share.hpp>

#include <cstdint>
#include <vector>

namespace trireme::architecture {

/// In the copy from which a checkpoint is written in the background, parts begin at pages, so that
/// devices can take them from there.
inline constexpr Bytes saved_alignment = 4096;
inline constexpr Bytes saved_bytes(Bytes bytes) {
  return (bytes + saved_alignment - 1) / saved_alignment * saved_alignment;
}

/// A part of a rank's local array that this rank writes to checkpoints.
struct SavedPart {
  std::size_t local = 0;             ///< number in the list of local arrays
  std::vector<std::int64_t> offset;  ///< in the global array
  std::vector<std::int64_t> extent;
  std::int64_t first = 0;  ///< element of the local array's memory at which it begins

  std::int64_t elements() const;
};

/// What rank `data_rank` of `data_size` replicas of a shard writes, in order of the local arrays.
/// Whoever holds the same numbers shares the writing: replicas, tensor ranks of what the tensor
/// axis does not cut and of heads that they share, first and last stage of tied embeddings. So all
/// ranks together write every element of every array once, and those of a stage write alike.
std::vector<SavedPart> saved_parts(const Architecture& architecture, const Shard& shard,
                                   const std::vector<LocalArray>& arrays, int data_size,
                                   int data_rank);

}  // namespace trireme::architecture
