#pragma once

#include <trireme/base/philox.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme::reference {

inline double gelu(double h) {
  return 0.5 * h *
         (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (h + 0.044715 * h * h * h)));
}

/// Derivative of gelu at h.
inline double gelu_slope(double h) {
  const double scale = std::sqrt(2 / 3.14159265358979323846);
  const double tanh_u = std::tanh(scale * (h + 0.044715 * h * h * h));
  return 0.5 * (1 + tanh_u) + 0.5 * h * (1 - tanh_u * tanh_u) * scale * (1 + 3 * 0.044715 * h * h);
}

inline double exact_gelu(double h) {
  return 0.5 * h * (1 + std::erf(h / std::sqrt(2.0)));
}

inline double quick_gelu(double h) {
  return h / (1 + std::exp(-1.702 * h));
}

inline double swiglu(double gate, double up) {
  return gate / (1 + std::exp(-gate)) * up;
}

inline double clamped_swiglu(double gate, double up, double limit) {
  const double a = std::min(gate, limit), b = std::clamp(up, -limit, limit);
  return a / (1 + std::exp(-1.702 * a)) * (b + 1);
}

/// Word `index` of the random array `key`.
inline std::uint32_t random_word(const RandomKey& key, std::int64_t index) {
  return philox(key, static_cast<std::uint64_t>(index) / 4).w[index % 4];
}

/// Factor of each element of `rows` rows of `hidden` elements, from global row `first_row` on: 1 /
/// (1 − rate) if the element is kept, otherwise 0.
inline std::vector<double> dropout_factors(std::int64_t rows, std::int64_t hidden, double rate,
                                           const RandomKey& key, std::int64_t first_row) {
  std::vector<double> factors;
  for (std::int64_t t = 0; t < rows; ++t)
    for (std::int64_t d = 0; d < hidden; ++d)
      factors.push_back(random_word(key, (first_row + t) * hidden + d) <
                                std::floor(rate * 4294967296.0)
                            ? 0.0
                            : 1 / (1 - rate));
  return factors;
}

}  // namespace trireme::reference
