#pragma once

#include <trireme/tensor/views.hpp>

#include <support/device_array.hpp>

#include <cstdint>
#include <random>
#include <vector>

namespace trireme::testing {

/// `n` ids, uniform in [0, vocabulary).
inline std::vector<std::int32_t> random_tokens(std::int64_t n, std::int64_t vocabulary,
                                               unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_int_distribution<std::int32_t> uniform(0, static_cast<std::int32_t>(vocabulary - 1));
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(n));
  for (auto& token : tokens) token = uniform(generator);
  return tokens;
}

/// Rows [first, last) of a [rows, columns] array.
template <class T>
View2<T> rows_of(const DeviceArray<T>& x, std::int64_t columns, std::int64_t first,
                 std::int64_t last) {
  return View2<T>(x.data() + first * columns, static_cast<std::size_t>(last - first),
                  static_cast<std::size_t>(columns));
}

}  // namespace trireme::testing
