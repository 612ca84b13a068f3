#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace trireme::layout {

using Extents = std::vector<std::int64_t>;

/// A block [offset, offset + extent) of an array whose elements lie together in the array's memory
/// (last axis fastest), from element `first` on.
struct Block {
  std::size_t array = 0;
  Extents offset;
  Extents extent;
  std::int64_t first = 0;

  std::int64_t elements() const;
  bool operator==(const Block&) const = default;
};

/// Part `i` of `parts` of arrays of these extents, taken as one sequence of elements: the parts
/// hold each element once and differ by no more than two rows of a last axis. Of an array of a axes
/// a part holds at most 2 a - 3 blocks (one, if a < 3). No axes: a scalar.
std::vector<Block> share(std::span<const Extents> arrays, std::int64_t parts, std::int64_t i);

}  // namespace trireme::layout
