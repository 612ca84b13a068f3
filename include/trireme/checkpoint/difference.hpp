#pragma once

#include <trireme/checkpoint/reader.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::checkpoint {

/// How an array differs between two checkpoints a and b.
struct Difference {
  std::string name;
  std::string only = {};  ///< what keeps it from being compared: "only in a", both shapes
  std::int64_t elements = 0;
  std::int64_t different = 0;   ///< elements whose bits differ
  double largest_absolute = 0;  ///< of |a - b|; infinite where one is NaN or infinite
  double largest_relative = 0;  ///< of |a - b| / max(|a|, |b|)
};

/// Compares all arrays of two checkpoints, in order of a and then what b alone has. Numbers go
/// through double, block by block: memory is bounded by a few MiB.
std::vector<Difference> compare(const Reader& a, const Reader& b);

}  // namespace trireme::checkpoint
