#pragma once

#include <trireme/tensor/views.hpp>

#include <cstdint>

/// Rates that this machine's arithmetic reaches when memory does not limit it. With the rate of
/// matrix products and the bandwidth, they bound other kernels. Asynchronous on exec.
namespace trireme::kernels {

/// Operation whose rate limits a kernel of the training step.
enum class Arithmetic : std::uint8_t {
  exponential,
  hyperbolic_tangent,
  error_function,
  sine_and_cosine,  ///< both in double precision, as for rotary positions
  random_word,      ///< a Philox word, as for dropout
};

inline constexpr int arithmetic_kinds = 5;

/// Elements of an array of arithmetic_work; they fit into a first-level cache.
inline constexpr std::int64_t arithmetic_elements = 2048;

/// Applies `kind` `repetitions` times to each element of x and writes each result to y. x, y
/// [arithmetic_elements]. Instantiated for float and double.
template <class Real>
void arithmetic_work(const Exec& exec, View1<Real> y, View1<const Real> x, Arithmetic kind,
                     std::int64_t repetitions);

}  // namespace trireme::kernels
