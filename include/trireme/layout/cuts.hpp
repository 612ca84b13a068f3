#pragma once

#include <trireme/layout/split.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace trireme::layout {

/// Cuts the first `n` items of a chain into `parts` contiguous parts whose largest cost is as small
/// as possible. Within this bound, each part reaches the mean cost of the parts that are left, so
/// that larger parts come first; with equal costs these are the parts of split(). Some parts are
/// empty if parts > n. `before`: cost of the items before each item, and of all, ascending from 0.
std::vector<Slice> cut_by_cost(std::span<const double> before, std::int64_t n, std::int64_t parts);

}  // namespace trireme::layout
