#pragma once

#include <trireme/tensor/views.hpp>

#include <cstdint>

/// Arithmetic on arrays that fit into a first-level cache, to measure a machine's rates.
/// Asynchronous on exec.
namespace trireme::kernels {

/// Operation whose rate may limit a kernel of the training step.
enum class Arithmetic : std::uint8_t {
  exponential,
  hyperbolic_tangent,
  error_function,
  sine_and_cosine,  ///< cos x + sin x in double precision, as for rotary positions
  random_word,      ///< one Philox word, as for dropout; does not read x
};

inline constexpr int arithmetic_kinds = 5;

/// Number of elements of x and of y in arithmetic_work.
inline constexpr std::int64_t arithmetic_elements = 2048;

/// Computes y[i] = kind(x[i]) for all elements, `repetitions` times; for random_word, y[i] is the
/// lowest bit of word i. x, y [arithmetic_elements]. Instantiated for float and double.
template <class Real>
void arithmetic_work(const Exec& exec, View1<Real> y, View1<const Real> x, Arithmetic kind,
                     std::int64_t repetitions);

}  // namespace trireme::kernels
