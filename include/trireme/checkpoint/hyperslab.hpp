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

/// Number of elements. Error for a negative extent or a number beyond 2^60.
std::int64_t volume(const Extents& extent);

/// The whole of an array.
Slab whole(const Extents& shape);

/// Error naming `what` unless the slab lies within the shape.
void expect_within(const std::string& what, const Slab& slab, const Extents& shape);

/// What two slabs share; nothing if that is empty.
std::optional<Slab> intersection(const Slab& a, const Slab& b);

/// Elements [from, from + count) of one memory and [to, to + count) of another.
using Run = std::function<void(std::int64_t from, std::int64_t to, std::int64_t count)>;

/// Walks `part`, which lies within `source` and `target`, in runs that are contiguous in the memory
/// of both (last axis fastest), `from` and `to` ascending.
void for_each_run(const Slab& part, const Slab& source, const Slab& target, const Run& run);

/// Cuts a slab into blocks of at most `elements` elements, in ascending order.
void for_each_block(const Slab& slab, std::int64_t elements,
                    const std::function<void(const Slab&)>& use);

/// Error naming `what` and the place unless the slabs lie within `shape` and cover each of its
/// elements exactly once. n slabs cut along one axis cost n log n.
void expect_tiling(const std::string& what, const Extents& shape, std::span<const Slab> slabs);

}  // namespace trireme::checkpoint
