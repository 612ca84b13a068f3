#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace trireme::layout {

using Extents = std::vector<std::int64_t>;

/// A block [offset, offset + extent) of an array. Its elements are contiguous in the memory of the
/// array (last axis fastest) and begin at element `first`.
struct Block {
  std::size_t array = 0;
  Extents offset;
  Extents extent;
  std::int64_t first = 0;

  std::int64_t elements() const;
  bool operator==(const Block&) const = default;
};

/// Elements [begin, end) of an array of this extent as blocks in ascending order: at most 2 a - 1
/// blocks for an array of a axes. `array`: number of the array in the blocks. Error if the elements
/// are not within the array.
std::vector<Block> blocks(std::size_t array, const Extents& extent, std::int64_t begin,
                          std::int64_t end);

/// Total number of elements of blocks(), with each block rounded up to a multiple of `unit`.
std::int64_t padded_elements(const Extents& extent, std::int64_t begin, std::int64_t end,
                             std::int64_t unit);

/// Divides arrays of these extents, taken as one sequence of elements, into `parts` parts. Each
/// element is in one part, and the sizes of the parts differ by at most two rows of a last axis. A
/// part has at most 2 a - 3 blocks of an array of a axes (one block if a < 3). An array without
/// axes is a scalar.
class Sharing {
 public:
  /// The extents must outlive this object.
  Sharing(std::vector<const Extents*> arrays, std::int64_t parts);

  /// Blocks of part `i`.
  std::vector<Block> blocks(std::int64_t i) const;
  /// Total number of elements of part `i`, with each block rounded up to a multiple of `unit`.
  std::int64_t padded(std::int64_t i, std::int64_t unit) const;

 private:
  /// Calls `use(array, begin, end)` for the arrays of part `i`, whose elements [begin, end) are in
  /// the part. A range may be empty.
  template <class Use>
  void visit(std::int64_t i, const Use& use) const;

  std::vector<const Extents*> arrays_;
  std::vector<std::int64_t> begins_;  ///< first element of each array in the sequence, then the end
  std::int64_t parts_;
};

/// Blocks of part `i` of Sharing(arrays, parts).
std::vector<Block> share(std::span<const Extents> arrays, std::int64_t parts, std::int64_t i);

}  // namespace trireme::layout
