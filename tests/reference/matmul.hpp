#pragma once

#include <cstdint>
#include <vector>

namespace trireme::reference {

/// c = alpha op(a) op(b) + beta c in double precision, by the definition. c [M,N], op(a) [M,K],
/// op(b) [K,N], row-major.
template <class T>
std::vector<double> matmul(const std::vector<T>& c, const std::vector<T>& a,
                           const std::vector<T>& b, std::int64_t rows, std::int64_t columns,
                           std::int64_t depth, bool ta, bool tb, double alpha, double beta) {
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  std::vector<double> result(at(rows * columns));
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) {
      double sum = 0.0;
      for (std::int64_t k = 0; k < depth; ++k) {
        const double x = a[at(ta ? k * rows + i : i * depth + k)];
        const double y = b[at(tb ? j * depth + k : k * columns + j)];
        sum += x * y;
      }
      const double old = beta == 0.0 ? 0.0 : beta * static_cast<double>(c[at(i * columns + j)]);
      result[at(i * columns + j)] = alpha * sum + old;
    }
  return result;
}

}  // namespace trireme::reference
