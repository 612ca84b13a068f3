#pragma once

#include <trireme/base/types.hpp>

#include <algorithm>

namespace trireme {

/// Segment size of sums over ranks. A rank's part is exchanged and summed in segments, so that data
/// are summed while they are in the cache: with two ranks of one node, 16 MB then take a fifth of
/// the time. Host memory holds one segment of every other rank for each sum in flight.
inline constexpr Bytes reduction_segment_bytes = 512 * 1024;

/// Segment size on devices, where the link needs long segments, and where the sums of one
/// communicator run one after another and share one buffer: 32 MiB for up to 64 ranks.
inline constexpr Bytes device_reduction_segment_bytes(int ranks) {
  return std::max<Bytes>(reduction_segment_bytes,
                         (Bytes{32} << 20) / std::max(1, ranks - 1) / 64 * 64);
}

/// Largest total of all ranks' inputs that every rank gathers and sums locally, in one exchange
/// instead of two.
inline constexpr Bytes gathered_reduction_bytes = 64 * 1024;
/// Inputs up to this size are gathered on any number of ranks: a message per rank would cost more.
inline constexpr Bytes few_reduction_bytes = 256;
inline constexpr bool gathers_reduction(Bytes bytes, int ranks) {
  return bytes <= few_reduction_bytes || bytes * ranks <= gathered_reduction_bytes;
}
/// The ranks' parts of a sum begin at multiples of this size, a cache line.
inline constexpr Bytes reduction_line_bytes = 64;

/// Size of the buffer in which a device's sum of `bytes` receives the other ranks' parts.
inline constexpr Bytes device_reduction_scratch_bytes(Bytes bytes, int ranks) {
  if (ranks == 1) return 0;
  if (gathers_reduction(bytes, ranks)) return bytes * (ranks - 1);
  const Bytes lines = (bytes + reduction_line_bytes - 1) / reduction_line_bytes;
  const Bytes part = std::min(bytes, (lines + ranks - 1) / ranks * reduction_line_bytes);
  return std::min(part, device_reduction_segment_bytes(ranks)) * (ranks - 1);
}

}  // namespace trireme
