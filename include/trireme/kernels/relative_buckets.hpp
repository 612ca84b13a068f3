#pragma once

#include <trireme/base/narrow.hpp>

#include <cstdint>

namespace trireme::kernels {

/// Buckets of the offsets j − i from query i to key j, for biases of attention's scores (Raffel et
/// al. 2020, arXiv 1910.10683, section 2.1). A side has n buckets of distances: `near` buckets of
/// one distance each, 0 … near − 1, then buckets whose widths grow exponentially. The last bucket
/// has no end. The keys up to the query have the buckets 0 … n − 1. With `both_sides`, later keys
/// have the buckets n … 2n − 1; otherwise they share bucket 0.
struct RelativeBuckets {
  static constexpr int most_far = 32;

  /// Offsets begin … end − 1.
  struct Offsets {
    std::int64_t begin, end;
  };

  int count = 0;  ///< number of buckets of both sides; 0: no bias
  int side = 0;   ///< n
  int near = 0;
  bool both_sides = false;
  std::int32_t far[most_far] = {};  ///< smallest distances of the n − near further buckets

  /// Smallest distance of bucket k of a side.
  TRIREME_FUNCTION std::int64_t first(int k) const { return k < near ? k : far[k - near]; }

  /// Bucket of an offset.
  TRIREME_FUNCTION int of(std::int64_t offset) const {
    const bool later = offset > 0;
    const std::int64_t distance = later ? (both_sides ? offset : 0) : -offset;
    int k = side - 1;
    while (k >= near && far[k - near] > distance) --k;
    if (k < near) k = static_cast<int>(distance);
    return later && both_sides ? side + k : k;
  }

  /// Offsets of a bucket; no offsets if end ≤ begin.
  TRIREME_FUNCTION Offsets offsets(int bucket) const {
    constexpr std::int64_t unbounded = std::int64_t{1} << 40;
    const int k = bucket % side;
    const std::int64_t nearest = first(k), end = k + 1 < side ? first(k + 1) : unbounded;
    if (bucket >= side) return {nearest > 0 ? nearest : 1, end};
    return {1 - end, k == 0 && !both_sides ? unbounded : 1 - nearest};
  }
};

/// `count` buckets, half of them for each side with `both_sides`. The bucket of a distance d ≥ near
/// = n / 2 is near + ⌊log(d / near) / log(max_distance / near) · (n − near)⌋ in fp32, but at most n
/// − 1. Error if a side has no or too many buckets, or if max_distance ≤ near.
RelativeBuckets relative_buckets(std::int64_t count, std::int64_t max_distance, bool both_sides);

}  // namespace trireme::kernels
