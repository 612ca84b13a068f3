// Layer normalisation against a naive reference in double, and its gradients by finite differences.
#include <trireme/kernels/norm.hpp>

#include <kernels/cases.hpp>
#include <reference/finite_difference.hpp>
#include <reference/norm.hpp>
#include <support/device_array.hpp>
#include <support/numbers.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace trireme::kernels {
namespace {

using testing::DeviceArray;
using testing::expect_close;
using testing::random_numbers;

/// Inputs of one case and the reference's results.
template <class T>
struct LayerNormCase {
  LayerNormCase(std::int64_t t, std::int64_t d)
      : rows(t),
        hidden(d),
        x(random_numbers<T>(t * d, 1)),
        dy(random_numbers<T>(t * d, 2)),
        gain(random_numbers<T>(d, 3)),
        bias(random_numbers<T>(d, 4)),
        forward(reference::layer_norm(x, gain, bias, norm_epsilon)),
        d_x(x),
        d_dy(dy),
        d_gain(gain),
        d_bias(bias),
        d_mean(forward.mean),
        d_inverse(forward.inverse_std) {}

  std::int64_t rows, hidden;
  std::vector<double> x, dy, gain, bias;
  reference::LayerNorm forward;
  DeviceArray<T> d_x, d_dy, d_gain, d_bias;
  DeviceArray<Accumulate<T>> d_mean, d_inverse;

  std::size_t row(std::size_t i) const { return i / static_cast<std::size_t>(hidden); }
  std::size_t column(std::size_t i) const { return i % static_cast<std::size_t>(hidden); }
  /// A sum of D terms in any order has an error of at most D eps times the sum of their magnitudes;
  /// 8 more for the roundings around it.
  double roundings() const {
    return static_cast<double>(hidden + 8) * std::numeric_limits<T>::epsilon();
  }
  double largest_x(std::size_t t) const {
    double largest = 0;
    for (std::size_t d = 0; d < static_cast<std::size_t>(hidden); ++d)
      largest = std::max(largest, std::abs(x[t * static_cast<std::size_t>(hidden) + d]));
    return largest;
  }
};

template <class T>
class LayerNorm : public ::testing::Test {};
TYPED_TEST_SUITE(LayerNorm, WideTypes);

TYPED_TEST(LayerNorm, ForwardMatchesReference) {
  using T = TypeParam;
  for (const std::int64_t t : small_sizes)
    for (const std::int64_t d : small_sizes) {
      const LayerNormCase<T> c(t, d);
      const DeviceArray<T> y(t * d);
      const DeviceArray<Accumulate<T>> mean(t);
      const DeviceArray<Accumulate<T>> inverse(t);
      layer_norm_forward<T>(Exec{}, y.matrix(t, d), mean.flat(), inverse.flat(), c.d_x.matrix(t, d),
                            c.d_gain.flat(), c.d_bias.flat(), norm_epsilon);
      // The mean is off by roundings largest_x; this shifts x - mean and changes 1/std by at most
      // its relative share.
      const auto spread = [&](std::size_t row) {
        return c.largest_x(row) * c.forward.inverse_std[row];
      };
      expect_close(mean.values(), c.forward.mean,
                   [&](std::size_t i) { return c.roundings() * c.largest_x(i); });
      expect_close(inverse.values(), c.forward.inverse_std, [&](std::size_t i) {
        return c.roundings() * c.forward.inverse_std[i] * (1 + spread(i));
      });
      expect_close(y.values(), c.forward.y, [&](std::size_t i) {
        const double gain = std::abs(c.gain[c.column(i)]);
        const double s = spread(c.row(i));
        return c.roundings() * (gain * s * (2 + s) + std::abs(c.bias[c.column(i)]));
      });
    }
}

TYPED_TEST(LayerNorm, ForwardWorksInPlace) {
  using T = TypeParam;
  const LayerNormCase<T> c(13, 128);
  const DeviceArray<T> y(13 * 128);
  const DeviceArray<Accumulate<T>> mean(13);
  const DeviceArray<Accumulate<T>> inverse(13);
  layer_norm_forward<T>(Exec{}, y.matrix(13, 128), mean.flat(), inverse.flat(),
                        c.d_x.matrix(13, 128), c.d_gain.flat(), c.d_bias.flat(), norm_epsilon);
  layer_norm_forward<T>(Exec{}, c.d_x.matrix(13, 128), mean.flat(), inverse.flat(),
                        c.d_x.matrix(13, 128), c.d_gain.flat(), c.d_bias.flat(), norm_epsilon);
  EXPECT_EQ(c.d_x.values(), y.values());
}

/// |dx| is a difference of three terms, each at most inverse_std times the row's largest |gain dy|
/// times 1, 1 and largest |xhat|^2. Each has the rounding error of a sum.
template <class T>
double backward_bound(const LayerNormCase<T>& c, std::size_t row) {
  double largest = 0;
  for (std::size_t d = 0; d < static_cast<std::size_t>(c.hidden); ++d)
    largest =
        std::max(largest, std::abs(c.gain[d] * c.dy[row * static_cast<std::size_t>(c.hidden) + d]));
  const double spread = 2 * c.largest_x(row) * c.forward.inverse_std[row];
  return c.roundings() * c.forward.inverse_std[row] * largest * (2 + spread * spread);
}

TYPED_TEST(LayerNorm, BackwardInputMatchesReference) {
  using T = TypeParam;
  for (const std::int64_t t : small_sizes)
    for (const std::int64_t d : small_sizes) {
      const LayerNormCase<T> c(t, d);
      auto expected = reference::layer_norm_backward_input(c.dy, c.x, c.gain, c.forward);
      const DeviceArray<T> dx(t * d);
      layer_norm_backward_input<T>(Exec{}, dx.matrix(t, d), c.d_dy.matrix(t, d), c.d_x.matrix(t, d),
                                   c.d_mean.flat(), c.d_inverse.flat(), c.d_gain.flat(), false);
      expect_close(dx.values(), expected,
                   [&](std::size_t i) { return backward_bound(c, c.row(i)); });

      const auto stream = random_numbers<T>(t * d, 5);
      const DeviceArray<T> sum(stream);
      layer_norm_backward_input<T>(Exec{}, sum.matrix(t, d), c.d_dy.matrix(t, d),
                                   c.d_x.matrix(t, d), c.d_mean.flat(), c.d_inverse.flat(),
                                   c.d_gain.flat(), true);
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += stream[i];
      expect_close(sum.values(), expected, [&](std::size_t i) {
        return backward_bound(c, c.row(i)) +
               2 * std::numeric_limits<T>::epsilon() * std::abs(expected[i]);
      });
    }
}

TYPED_TEST(LayerNorm, BackwardWeightMatchesReferenceAndAdds) {
  using T = TypeParam;
  using Acc = Accumulate<T>;
  for (const std::int64_t t : small_sizes)
    for (const std::int64_t d : small_sizes) {
      const LayerNormCase<T> c(t, d);
      const auto start = random_numbers<T>(2 * d, 6);
      const auto columns = static_cast<std::size_t>(d);
      std::vector<double> gain(start.begin(), start.begin() + d);
      std::vector<double> bias(start.begin() + d, start.end());
      const DeviceArray<Acc> dgain(gain);
      const DeviceArray<Acc> dbias(bias);
      std::vector<double> gain_size(columns),
          bias_size(columns);  // sums of magnitudes, for the bound
      for (std::size_t i = 0; i < c.x.size(); ++i) {
        const std::size_t row = c.row(i);
        const double xhat = (c.x[i] - c.forward.mean[row]) * c.forward.inverse_std[row];
        gain[c.column(i)] += c.dy[i] * xhat;
        bias[c.column(i)] += c.dy[i];
        gain_size[c.column(i)] += std::abs(c.dy[i]) *
                                  (std::abs(c.x[i]) + std::abs(c.forward.mean[row])) *
                                  c.forward.inverse_std[row];
        bias_size[c.column(i)] += std::abs(c.dy[i]);
      }
      layer_norm_backward_weight<T>(Handle{}, dgain.flat(), dbias.flat(), c.d_dy.matrix(t, d),
                                    c.d_x.matrix(t, d), c.d_mean.flat(), c.d_inverse.flat());
      const double roundings = static_cast<double>(t + 4) * std::numeric_limits<T>::epsilon();
      expect_close(dgain.values(), gain,
                   [&](std::size_t i) { return roundings * (gain_size[i] + std::abs(start[i])); });
      expect_close(dbias.values(), bias, [&](std::size_t i) {
        return roundings * (bias_size[i] + std::abs(start[columns + i]));
      });
    }
}

TEST(LayerNormGradient, BackwardMatchesFiniteDifferences) {
  for (const std::int64_t d : small_sizes) {
    const LayerNormCase<double> c(2, d);
    const auto loss = [&](const std::vector<double>& x, const std::vector<double>& gain,
                          const std::vector<double>& bias) {
      return reference::dot(c.dy, reference::layer_norm(x, gain, bias, norm_epsilon).y);
    };
    const DeviceArray<double> dx(2 * d);
    const DeviceArray<double> dgain(d);
    const DeviceArray<double> dbias(d);
    layer_norm_backward_input<double>(Exec{}, dx.matrix(2, d), c.d_dy.matrix(2, d),
                                      c.d_x.matrix(2, d), c.d_mean.flat(), c.d_inverse.flat(),
                                      c.d_gain.flat(), false);
    layer_norm_backward_weight<double>(Handle{}, dgain.flat(), dbias.flat(), c.d_dy.matrix(2, d),
                                       c.d_x.matrix(2, d), c.d_mean.flat(), c.d_inverse.flat());
    // Truncation: each of the three derivatives by x has a factor of at most 3 inverse_std (through
    // x, mean and variance). Cancellation: a sum of 2D terms, each off by a few eps.
    double size = 0;
    for (std::size_t i = 0; i < c.dy.size(); ++i)
      size +=
          std::abs(c.dy[i]) * (std::abs(c.gain[c.column(i)]) * 3 + std::abs(c.bias[c.column(i)]));
    const double cancellation = 8 * std::numeric_limits<double>::epsilon() * size *
                                static_cast<double>(d) / reference::difference_step;
    const double steepness =
        3 * *std::max_element(c.forward.inverse_std.begin(), c.forward.inverse_std.end());
    const double truncation =
        reference::difference_step * reference::difference_step / 6 * std::pow(steepness, 3) * size;
    // At D = 1 the derivative is exactly 0 on both sides, whatever the steepness.
    const double bound = d == 1 ? cancellation : cancellation + truncation;
    ASSERT_LT(bound, 1e-4);  // otherwise the comparison would mean nothing
    const auto close = [&](std::size_t) { return bound; };
    expect_close(
        dx.values(),
        reference::finite_difference([&](const auto& x) { return loss(x, c.gain, c.bias); }, c.x),
        close);
    expect_close(dgain.values(),
                 reference::finite_difference(
                     [&](const auto& gain) { return loss(c.x, gain, c.bias); }, c.gain),
                 close);
    expect_close(dbias.values(),
                 reference::finite_difference(
                     [&](const auto& bias) { return loss(c.x, c.gain, bias); }, c.bias),
                 close);
  }
}

}  // namespace
}  // namespace trireme::kernels
