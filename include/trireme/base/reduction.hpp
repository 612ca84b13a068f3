#pragma once

#include <trireme/base/types.hpp>

#include <algorithm>

namespace trireme {

/// Segment size of sums over ranks on hosts. Each rank's part of a sum is exchanged and summed in
/// segments, so that the data are in the cache when they are summed.
inline constexpr Bytes reduction_segment_bytes = 512 * 1024;

/// Segment size of sums over ranks on devices, where links need long messages. The sums of one
/// communicator share one buffer, which holds one segment of every other rank: at most 32 MiB for
/// up to 65 ranks.
inline constexpr Bytes device_reduction_segment_bytes(int ranks) {
  return std::max<Bytes>(reduction_segment_bytes,
                         (Bytes{32} << 20) / std::max(1, ranks - 1) / 64 * 64);
}

/// Largest total size of all ranks' inputs for which every rank gathers all inputs and sums them
/// itself, in one exchange instead of two.
inline constexpr Bytes gathered_reduction_bytes = 64 * 1024;
/// Inputs of at most this size per rank are gathered on any number of ranks.
inline constexpr Bytes few_reduction_bytes = 256;
inline constexpr bool gathers_reduction(Bytes bytes, int ranks) {
  return bytes <= few_reduction_bytes || bytes * ranks <= gathered_reduction_bytes;
}
/// The ranks' parts of a sum begin at multiples of this size, a cache line.
inline constexpr Bytes reduction_line_bytes = 64;

/// Size of the buffer for the data of the other ranks in a sum over ranks on a device. `bytes`:
/// size of the input of one rank.
inline constexpr Bytes device_reduction_scratch_bytes(Bytes bytes, int ranks) {
  if (ranks == 1) return 0;
  if (gathers_reduction(bytes, ranks)) return bytes * (ranks - 1);
  const Bytes lines = (bytes + reduction_line_bytes - 1) / reduction_line_bytes;
  const Bytes part = std::min(bytes, (lines + ranks - 1) / ranks * reduction_line_bytes);
  return std::min(part, device_reduction_segment_bytes(ranks)) * (ranks - 1);
}

}  // namespace trireme
