#pragma once

#include <trireme/base/types.hpp>

namespace trireme {

/// A rank's part of what is summed over ranks is exchanged and summed in segments of so much, so
/// that what arrives is summed while it is in the cache: 16 MB between two ranks of one node take a
/// fifth of the time. One segment of every other rank is in host memory for each sum under way.
inline constexpr Bytes reduction_segment_bytes = 512 * 1024;

}  // namespace trireme
