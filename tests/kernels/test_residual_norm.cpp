#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/norm.hpp>

#include <kernels/cases.hpp>
#include <support/device_array.hpp>
#include <support/numbers.hpp>

#include <gtest/gtest.h>

/// A residual sum and its norm in one kernel, compared with two kernels.
namespace trireme::kernels {
namespace {

using testing::DeviceArray;
using testing::random_numbers;

template <class T>
std::vector<double> numbers(const DeviceArray<T>& array) {
  const std::vector<T> values = array.values();
  std::vector<double> out;
  for (const T value : values)
    out.push_back(static_cast<double>(static_cast<Accumulate<T>>(value)));
  return out;
}

/// All results of a call.
using Outcome = std::vector<std::vector<double>>;

template <class T>
struct ResidualNormCase {
  using A = Accumulate<T>;

  ResidualNormCase(std::int64_t t, std::int64_t d, double rate)
      : rows(t),
        hidden(d),
        x(random_numbers<A>(t * d, 1)),
        z(random_numbers<A>(t * d, 2)),
        gain(random_numbers<A>(d, 3)),
        bias(random_numbers<A>(d, 4)),
        site{rate, {7, Purpose::dropout, 3, 5}, 11} {}

  /// The sum replaces z, as in a layer.
  Outcome layer_norm(bool at_once) const {
    const DeviceArray<T> sum(z.values()), y(rows * hidden);
    const DeviceArray<A> mean(rows), inverse(rows);
    const View2<T> s = sum.matrix(rows, hidden);
    if (at_once) {
      residual_layer_norm_forward<T>(exec, y.matrix(rows, hidden), mean.flat(), inverse.flat(), s,
                                     x.matrix(rows, hidden), s, site, gain.flat(), bias.flat(),
                                     norm_epsilon);
    } else {
      residual_dropout_forward<T>(exec, s, x.matrix(rows, hidden), s, site);
      layer_norm_forward<T>(exec, y.matrix(rows, hidden), mean.flat(), inverse.flat(), s,
                            gain.flat(), bias.flat(), norm_epsilon);
    }
    return {numbers(sum), numbers(y), numbers(mean), numbers(inverse)};
  }
  Outcome rms_norm(bool at_once) const {
    const DeviceArray<T> sum(z.values()), y(rows * hidden);
    const DeviceArray<A> inverse(rows);
    const View2<T> s = sum.matrix(rows, hidden);
    if (at_once) {
      residual_rms_norm_forward<T>(exec, y.matrix(rows, hidden), inverse.flat(), s,
                                   x.matrix(rows, hidden), s, site, gain.flat(), 1, norm_epsilon);
    } else {
      residual_dropout_forward<T>(exec, s, x.matrix(rows, hidden), s, site);
      rms_norm_forward<T>(exec, y.matrix(rows, hidden), inverse.flat(), s, gain.flat(), 1,
                          norm_epsilon);
    }
    return {numbers(sum), numbers(y), numbers(inverse)};
  }

  Exec exec;
  std::int64_t rows, hidden;
  DeviceArray<T> x, z, gain, bias;
  Dropout site;
};

template <class T>
class ResidualNorm : public ::testing::Test {};
TYPED_TEST_SUITE(ResidualNorm, AllTypes);

TYPED_TEST(ResidualNorm, MatchesSeparateKernelsBitForBit) {
  for (const std::int64_t t : {1, 13, 128})
    for (const std::int64_t d : {1, 13, 128, 770})
      for (const double rate : {0.0, 0.3}) {
        SCOPED_TRACE(text("[", t, ", ", d, "], dropout ", rate));
        const ResidualNormCase<TypeParam> c(t, d, rate);
        EXPECT_EQ(c.layer_norm(true), c.layer_norm(false));
        EXPECT_EQ(c.rms_norm(true), c.rms_norm(false));
      }
}

TYPED_TEST(ResidualNorm, RejectsDifferentShapes) {
  const ResidualNormCase<TypeParam> c(3, 8, 0.0);
  const DeviceArray<TypeParam> y(24), sum(16);
  const DeviceArray<Accumulate<TypeParam>> mean(3), inverse(3);
  EXPECT_THROW(residual_layer_norm_forward<TypeParam>(
                   c.exec, y.matrix(3, 8), mean.flat(), inverse.flat(), sum.matrix(2, 8),
                   c.x.matrix(3, 8), c.z.matrix(3, 8), c.site, c.gain.flat(), c.bias.flat(), 1e-5),
               Error);
}

}  // namespace
}  // namespace trireme::kernels
