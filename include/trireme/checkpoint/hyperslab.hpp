#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trireme::checkpoint {

using Extents = std::vector<std::int64_t>;

/// The block [offset, offset + extent) of an array along every axis. Without axes: a scalar, which
/// is one element.
struct Slab {
  Extents offset;
  Extents extent;
  bool operator==(const Slab&) const = default;
};

/// "[2, 3]"
std::string shape_text(const Extents& shape);

/// Largest number of elements of an array; its byte count fits into 64 bits.
inline constexpr std::int64_t most_elements = std::int64_t{1} << 56;

/// Number of elements of a block. Error for a negative extent or over `most_elements` elements.
std::int64_t volume(const Extents& extent);
/// Whether a shape without negative extents has at most `most_elements` elements.
bool is_small_enough(const Extents& extent);

/// The slab of a whole array.
Slab whole(const Extents& shape);

/// Throws Error naming `what` unless the slab is within the shape.
void expect_within(const std::string& what, const Slab& slab, const Extents& shape);

/// The intersection of two slabs; std::nullopt if it is empty.
std::optional<Slab> intersection(const Slab& a, const Slab& b);

/// Copies elements [from, from + count) of the source to [to, to + count) of the target.
using Run = std::function<void(std::int64_t from, std::int64_t to, std::int64_t count)>;

/// Calls `run` for the elements of `part`, which must be within `source` and `target`, in ascending
/// order. A run is contiguous in the memory of both slabs (last axis fastest).
void for_each_run(const Slab& part, const Slab& source, const Slab& target, const Run& run);

/// Splits a slab into blocks of at most `elements` ≥ 1 elements, and calls `use` for each block in
/// ascending order.
void for_each_block(const Slab& slab, std::int64_t elements,
                    const std::function<void(const Slab&)>& use);

/// Throws Error naming `what` unless the slabs are within `shape` and cover each element of the
/// array exactly once. Takes O(n log n) time for n slabs along one axis.
void expect_tiling(const std::string& what, const Extents& shape, std::span<const Slab> slabs);

}  // namespace trireme::checkpoint
