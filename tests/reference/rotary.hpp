#pragma once

#include <trireme/kernels/rotary.hpp>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme::reference {

/// Position of the token of a row without Rotary::positions and Rotary::places, as defined in
/// kernels/rotary.hpp.
inline std::int64_t rotary_position(const kernels::Rotary& r, std::int64_t row) {
  return (r.first_row + row) % r.sequence;
}

/// The frequency of pair i, in radians per position.
inline double rotary_frequency(const kernels::Rotary& r, std::int64_t i) {
  const auto pair = static_cast<double>(i);
  const double f = std::pow(r.theta, -2.0 * pair / static_cast<double>(r.head_size));
  const kernels::RotaryScaling& s = r.scaling;
  const double divided = std::clamp(s.start + s.per_pair * pair + s.per_frequency * f, 0.0, 1.0);
  return f * (1 - divided) + f / s.factor * divided;
}

/// Rotary position embedding with complex numbers (Su et al. 2021, section 3.2.1). Element i of a
/// head's lower half is the real part, and element i of its upper half the imaginary part, of a
/// number that is multiplied by e^(i m f) and by the magnitude, for position m and frequency f.
inline std::vector<double> rotary(std::vector<double> x, std::int64_t columns,
                                  const kernels::Rotary& r) {
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  const std::int64_t half = r.head_size / 2;
  for (std::int64_t t = 0; t < static_cast<std::int64_t>(x.size()) / columns; ++t)
    for (std::int64_t h = 0; h < r.heads; ++h)
      for (std::int64_t i = 0; i < half; ++i) {
        double& real = x[at(t * columns + h * r.head_size + i)];
        double& imaginary = x[at(t * columns + h * r.head_size + half + i)];
        const double angle = static_cast<double>(rotary_position(r, t)) * rotary_frequency(r, i);
        const auto turned =
            std::complex<double>(real, imaginary) * std::polar(r.scaling.magnitude, angle);
        real = turned.real();
        imaginary = turned.imag();
      }
  return x;
}

}  // namespace trireme::reference
