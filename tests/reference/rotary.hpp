#pragma once

#include <trireme/kernels/rotary.hpp>

#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme::reference {

/// The position of a row, by the definition in kernels/rotary.hpp.
inline std::int64_t rotary_position(const kernels::Rotary& r, std::int64_t row) {
  return r.first_position + (r.first_row + row) % r.sequence;
}

/// Rotary positions as complex numbers (Su et al. 2021, section 3.2.1): element i of a head's lower
/// half is the real part and that of its upper half the imaginary part of a number, which is
/// multiplied by e^(i m θ^(−2i/K)).
inline std::vector<double> rotary(std::vector<double> x, std::int64_t columns,
                                  const kernels::Rotary& r) {
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  const std::int64_t half = r.head_size / 2;
  for (std::int64_t t = 0; t < static_cast<std::int64_t>(x.size()) / columns; ++t)
    for (std::int64_t h = 0; h < r.heads; ++h)
      for (std::int64_t i = 0; i < half; ++i) {
        double& real = x[at(t * columns + h * r.head_size + i)];
        double& imaginary = x[at(t * columns + h * r.head_size + half + i)];
        const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(r.head_size);
        const double angle =
            static_cast<double>(rotary_position(r, t)) * std::pow(r.theta, exponent);
        const auto turned = std::complex<double>(real, imaginary) * std::polar(1.0, angle);
        real = turned.real();
        imaginary = turned.imag();
      }
  return x;
}

}  // namespace trireme::reference
