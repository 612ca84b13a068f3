#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trireme::checkpoint {

using Extents = std::vector<std::int64_t>;

/// The block [offset, offset + extent) of every axis of an array. No axes: a scalar, one element.
struct Slab {
  Extents offset;
  Extents extent;
  bool operator==(const Slab&) const = default;
};

/// "[2, 3]"
std::string shape_text(const Extents& shape);

/// Largest number of elements of an array: byte counts and their sums fit into 64 bits.
inline constexpr std::int64_t most_elements = std::int64_t{1} << 56;

/// Number of elements. Error for a negative extent or more than `most_elements`.
std::int64_t volume(const Extents& extent);
/// Whether a shape without negative extents has at most `most_elements`.
bool is_small_enough(const Extents& extent);

/// The slab of a whole array.
Slab whole(const Extents& shape);

/// Throws Error naming `what` unless the slab is within the shape.
void expect_within(const std::string& what, const Slab& slab, const Extents& shape);

/// The intersection of two slabs; no value if it is empty.
std::optional<Slab> intersection(const Slab& a, const Slab& b);

/// Copies elements [from, from + count) of the source to [to, to + count) of the target.
using Run = std::function<void(std::int64_t from, std::int64_t to, std::int64_t count)>;

/// Calls `run` for `part`, which is within `source` and `target`, in runs that are contiguous in
/// the memory of both (last axis fastest), with ascending `from` and `to`.
void for_each_run(const Slab& part, const Slab& source, const Slab& target, const Run& run);

/// Splits a slab into blocks of at most `elements` elements, in ascending order.
void for_each_block(const Slab& slab, std::int64_t elements,
                    const std::function<void(const Slab&)>& use);

/// Throws Error naming `what` and the position unless the slabs are within `shape` and cover each
/// of its elements exactly once. Takes n log n time for n slabs split along one axis.
void expect_tiling(const std::string& what, const Extents& shape, std::span<const Slab> slabs);

}  // namespace trireme::checkpoint
