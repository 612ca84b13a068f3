#pragma once

#include <cstdint>
#include <vector>

namespace trireme::reference {

/// The bounds of `parts` consecutive uneven parts of [0, n): their beginnings, and n. The first
/// parts are empty if n is small.
inline std::vector<std::int64_t> uneven_parts(std::int64_t n, std::int64_t parts) {
  std::vector<std::int64_t> begins;
  for (std::int64_t i = 0; i <= parts; ++i) begins.push_back(n * i * i / (parts * parts));
  return begins;
}

/// Columns [first, last) of x [rows, columns].
template <class T>
std::vector<T> columns_of(const std::vector<T>& x, std::int64_t columns, std::int64_t first,
                          std::int64_t last) {
  std::vector<T> part;
  for (auto row = x.begin(); row != x.end(); row += columns)
    part.insert(part.end(), row + first, row + last);
  return part;
}

}  // namespace trireme::reference
