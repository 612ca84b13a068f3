#pragma once

#include <cstdint>
#include <vector>

namespace trireme::reference {

/// Bounds of `parts` consecutive parts of [0, n) with different sizes: the beginning of each part,
/// and n at the end. If n is small, the first parts are empty.
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
