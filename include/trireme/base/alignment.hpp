#pragma once

#include <trireme/base/types.hpp>

#include <cstdint>

namespace trireme {

/// Alignment of each array in an arena, in bytes: the size of a cache line.
inline constexpr Bytes array_alignment = 64;
/// Alignment of each array in an arena, in elements: array_alignment bytes of a two-byte type. All
/// types use it, so that an array has the same offset, in elements, in every precision.
inline constexpr std::int64_t array_alignment_elements = 32;

/// `bytes`, rounded up to a multiple of array_alignment.
constexpr Bytes aligned(Bytes bytes) {
  return (bytes + array_alignment - 1) / array_alignment * array_alignment;
}
/// `elements`, rounded up to a multiple of array_alignment_elements.
constexpr std::int64_t aligned_elements(std::int64_t elements) {
  return (elements + array_alignment_elements - 1) / array_alignment_elements *
         array_alignment_elements;
}

/// n / part, rounded up.
constexpr std::int64_t divided_up(std::int64_t n, std::int64_t part) {
  return (n + part - 1) / part;
}

}  // namespace trireme
