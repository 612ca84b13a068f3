#include <trireme/kernels/arithmetic.hpp>
#include <trireme/kernels/erf.hpp>
#include <trireme/kernels/lanes.hpp>
#include <trireme/kernels/math.hpp>
#include <trireme/kernels/words.hpp>
#include <trireme/tensor/expect.hpp>

namespace trireme::kernels {

template <class Real>
void arithmetic_work(const Exec& exec, View1<Real> y, View1<const Real> x, Arithmetic kind,
                     std::int64_t repetitions) {
  expect_shape(y, "y", {arithmetic_elements});
  expect_shape(x, "x", {arithmetic_elements});
  const Real* from = x.data();
  Real* to = y.data();
  const RandomKey key{1, Purpose::dropout, 0, 0};
  // Every repetition writes the same values, so that teams may run in any order.
  for_rows(
      "kernels/arithmetic_work", exec, repetitions, KOKKOS_LAMBDA(const Team& team, std::int64_t) {
        constexpr std::int64_t n = arithmetic_elements;
        switch (kind) {
          case Arithmetic::exponential:
            for_lanes(team, n, [&](std::int64_t i) { to[i] = fast_exp(from[i]); });
            break;
          case Arithmetic::hyperbolic_tangent:
            for_lanes(team, n, [&](std::int64_t i) { to[i] = fast_tanh(from[i]); });
            break;
          case Arithmetic::error_function:
            for_lanes(team, n, [&](std::int64_t i) { to[i] = fast_erf(from[i]); });
            break;
          case Arithmetic::sine_and_cosine:
            for_lanes(team, n, [&](std::int64_t i) {
              const double angle = static_cast<double>(from[i]);
              to[i] = static_cast<Real>(math::cos(angle) + math::sin(angle));
            });
            break;
          case Arithmetic::random_word:
            for_words(team, key, 0, n, [&](std::int64_t i, std::uint32_t word) {
              to[i] = static_cast<Real>(word & 1U);
            });
            break;
        }
      });
}

template void arithmetic_work<float>(const Exec&, View1<float>, View1<const float>, Arithmetic,
                                     std::int64_t);
template void arithmetic_work<double>(const Exec&, View1<double>, View1<const double>, Arithmetic,
                                      std::int64_t);

}  // namespace trireme::kernels
