#pragma once

#include <trireme/base/check.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace trireme::layout {

/// A contiguous part [offset, offset + extent) of a dimension.
struct Slice {
  std::int64_t offset = 0;
  std::int64_t extent = 0;
  std::int64_t end() const { return offset + extent; }
  bool operator==(const Slice&) const = default;
};

/// Part `i` of `n` elements that are cut into `parts` contiguous parts, larger parts first. The
/// sizes of the parts differ by at most one. Some parts are empty if parts > n.
inline Slice split(std::int64_t n, std::int64_t parts, std::int64_t i) {
  check(n >= 0 && parts >= 1 && i >= 0 && i < parts, "split(", n, ", ", parts, ", ", i,
        "): part out of range");
  const std::int64_t base = n / parts;
  const std::int64_t larger = n % parts;
  return {i * base + (i < larger ? i : larger), base + (i < larger ? 1 : 0)};
}

/// Groups with elements in part `i`, if `n` groups of `group` elements each are divided by
/// split(n · group, parts, i). Several parts may have elements of the same group.
inline Slice split_groups(std::int64_t n, std::int64_t group, std::int64_t parts, std::int64_t i) {
  const Slice elements = split(n * group, parts, i);
  const std::int64_t first = elements.offset / group;
  const std::int64_t end = (elements.end() + group - 1) / group;
  return {first, elements.extent == 0 ? 0 : end - first};
}

/// Index of the part of split(n, parts, …) that contains element `x`.
inline std::int64_t part_with(std::int64_t n, std::int64_t parts, std::int64_t x) {
  check(parts >= 1 && x >= 0 && x < n, "part_with(", n, ", ", parts, ", ", x,
        "): element out of range");
  const std::int64_t base = n / parts;
  const std::int64_t larger = n % parts;
  const std::int64_t in_larger = larger * (base + 1);
  return x < in_larger ? x / (base + 1) : larger + (x - in_larger) / base;
}

/// Cuts the first `n` items of a chain into `parts` contiguous parts whose largest cost is as small
/// as possible. With equal costs, the parts equal the parts of split(). Some parts are empty if
/// parts > n. before[i] is the total cost of the first i items; `before` has more than n values.
std::vector<Slice> cut_by_cost(std::span<const double> before, std::int64_t n, std::int64_t parts);

}  // namespace trireme::layout
