#pragma once

#include <cstddef>
#include <vector>

namespace trireme::reference {

/// Step of central differences, near the cube root of double's machine epsilon. At this step, the
/// truncation error (step² / 6 times the third derivative) and the cancellation error (epsilon /
/// step times the value) are both about 2e-11.
inline constexpr double difference_step = 1e-5;

/// Gradient of f, a function from a vector to a double, by central differences in every component.
template <class F>
std::vector<double> finite_difference(const F& f, std::vector<double> x) {
  std::vector<double> gradient(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double centre = x[i];
    x[i] = centre + difference_step;
    const double above = f(x);
    x[i] = centre - difference_step;
    const double below = f(x);
    x[i] = centre;
    gradient[i] = (above - below) / (2 * difference_step);
  }
  return gradient;
}

inline double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace trireme::reference
