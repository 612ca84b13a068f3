// Root mean square normalisation against a naive reference in double, and its gradients by finite
// differences.
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

/// Rows, and the offset of their gains.
constexpr std::pair<std::int64_t, double> rms_shapes[] = {
    {1, 0}, {13, 0}, {128, 0}, {13, 1}, {128, 1}};

/// Inputs of one case and the reference's results.
template <class T>
struct RmsCase {
  RmsCase(std::int64_t t, std::int64_t d, double offset_ = 0)
      : rows(t),
        hidden(d),
        offset(offset_),
        x(random_numbers<T>(t * d, 1)),
        dy(random_numbers<T>(t * d, 2)),
        stored(random_numbers<T>(d, 3)),
        gain(shifted(stored, offset)),
        forward(reference::rms_norm(x, gain, norm_epsilon)),
        d_x(x),
        d_dy(dy),
        d_gain(stored),
        d_inverse(forward.inverse_rms) {}

  /// The gains with their offset.
  static std::vector<double> shifted(std::vector<double> gains, double offset) {
    for (double& g : gains) g += offset;
    return gains;
  }

  std::int64_t rows, hidden;
  double offset;  ///< of the gains on the device
  std::vector<double> x, dy, stored, gain;
  reference::RmsNorm forward;
  DeviceArray<T> d_x, d_dy, d_gain;
  DeviceArray<Accumulate<T>> d_inverse;

  std::size_t row(std::size_t i) const { return i / static_cast<std::size_t>(hidden); }
  std::size_t column(std::size_t i) const { return i % static_cast<std::size_t>(hidden); }
  /// A sum of D squares, all positive, in any order has a relative error of at most D eps; 8 more
  /// for the roundings around it.
  double roundings() const {
    return static_cast<double>(hidden + 8) * std::numeric_limits<T>::epsilon();
  }
};

template <class T>
class RmsNorm : public ::testing::Test {};
TYPED_TEST_SUITE(RmsNorm, WideTypes);

TYPED_TEST(RmsNorm, ForwardMatchesReferenceAndWorksInPlace) {
  using T = TypeParam;
  for (const std::int64_t t : small_sizes)
    for (const auto& [d, offset] : rms_shapes) {
      const RmsCase<T> c(t, d, offset);
      const DeviceArray<T> y(t * d);
      const DeviceArray<Accumulate<T>> inverse(t);
      rms_norm_forward<T>(Exec{}, y.matrix(t, d), inverse.flat(), c.d_x.matrix(t, d),
                          c.d_gain.flat(), c.offset, norm_epsilon);
      expect_close(inverse.values(), c.forward.inverse_rms,
                   [&](std::size_t i) { return c.roundings() * c.forward.inverse_rms[i]; });
      expect_close(y.values(), c.forward.y,
                   [&](std::size_t i) { return c.roundings() * std::abs(c.forward.y[i]); });
      rms_norm_forward<T>(Exec{}, c.d_x.matrix(t, d), inverse.flat(), c.d_x.matrix(t, d),
                          c.d_gain.flat(), c.offset, norm_epsilon);
      EXPECT_EQ(c.d_x.values(), y.values());
    }
}

/// |dx| is a difference of two terms, at most inverse_rms times the row's largest |gain dy| times 1
/// and largest |xhat|^2; each has the rounding error of a sum.
template <class T>
double backward_bound(const RmsCase<T>& c, std::size_t row) {
  double largest = 0;
  double spread = 0;
  for (std::size_t d = 0; d < static_cast<std::size_t>(c.hidden); ++d) {
    const std::size_t i = row * static_cast<std::size_t>(c.hidden) + d;
    largest = std::max(largest, std::abs(c.gain[d] * c.dy[i]));
    spread = std::max(spread, std::abs(c.x[i]) * c.forward.inverse_rms[row]);
  }
  return c.roundings() * c.forward.inverse_rms[row] * largest * (1 + spread * spread);
}

TYPED_TEST(RmsNorm, BackwardInputMatchesReference) {
  using T = TypeParam;
  for (const std::int64_t t : small_sizes)
    for (const auto& [d, offset] : rms_shapes) {
      const RmsCase<T> c(t, d, offset);
      auto expected = reference::rms_norm_backward_input(c.dy, c.x, c.gain, c.forward);
      const auto stream = random_numbers<T>(t * d, 5);
      const DeviceArray<T> dx(t * d);
      const DeviceArray<T> sum(stream);
      rms_norm_backward_input<T>(Exec{}, dx.matrix(t, d), c.d_dy.matrix(t, d), c.d_x.matrix(t, d),
                                 c.d_inverse.flat(), c.d_gain.flat(), c.offset, false);
      rms_norm_backward_input<T>(Exec{}, sum.matrix(t, d), c.d_dy.matrix(t, d), c.d_x.matrix(t, d),
                                 c.d_inverse.flat(), c.d_gain.flat(), c.offset, true);
      expect_close(dx.values(), expected,
                   [&](std::size_t i) { return backward_bound(c, c.row(i)); });
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += stream[i];
      expect_close(sum.values(), expected, [&](std::size_t i) {
        return backward_bound(c, c.row(i)) +
               2 * std::numeric_limits<T>::epsilon() * std::abs(expected[i]);
      });
    }
}

TYPED_TEST(RmsNorm, BackwardWeightMatchesReferenceAndAdds) {
  using T = TypeParam;
  for (const std::int64_t t : small_sizes)
    for (const std::int64_t d : {1, 13, 128, 5000}) {
      const RmsCase<T> c(t, d);
      const auto start = random_numbers<T>(d, 6);
      std::vector<double> gain = start;
      const DeviceArray<Accumulate<T>> dgain(gain);
      std::vector<double> size(gain.size());  // sums of magnitudes, for the bound
      for (std::size_t i = 0; i < c.x.size(); ++i) {
        const double term = c.dy[i] * c.x[i] * c.forward.inverse_rms[c.row(i)];
        gain[c.column(i)] += term;
        size[c.column(i)] += std::abs(term);
      }
      rms_norm_backward_weight<T>(Handle{}, dgain.flat(), c.d_dy.matrix(t, d), c.d_x.matrix(t, d),
                                  c.d_inverse.flat());
      const double roundings = static_cast<double>(t + 4) * std::numeric_limits<T>::epsilon();
      expect_close(dgain.values(), gain,
                   [&](std::size_t i) { return roundings * (size[i] + std::abs(start[i])); });
    }
}

TEST(RmsNormGradient, BackwardMatchesFiniteDifferences) {
  for (const std::int64_t d : small_sizes) {
    const RmsCase<double> c(2, d);
    const auto loss = [&](const std::vector<double>& x, const std::vector<double>& gain) {
      return reference::dot(c.dy, reference::rms_norm(x, gain, norm_epsilon).y);
    };
    const DeviceArray<double> dx(2 * d);
    const DeviceArray<double> dgain(d);
    rms_norm_backward_input<double>(Exec{}, dx.matrix(2, d), c.d_dy.matrix(2, d),
                                    c.d_x.matrix(2, d), c.d_inverse.flat(), c.d_gain.flat(),
                                    c.offset, false);
    rms_norm_backward_weight<double>(Handle{}, dgain.flat(), c.d_dy.matrix(2, d),
                                     c.d_x.matrix(2, d), c.d_inverse.flat());
    // As for layer normalisation: three derivatives of at most 3 inverse_rms each, and cancellation
    // of a sum of 2D terms.
    double size = 0;
    for (std::size_t i = 0; i < c.dy.size(); ++i)
      size += std::abs(c.dy[i]) * std::abs(c.gain[c.column(i)]) * 3;
    const double steepness =
        3 * *std::max_element(c.forward.inverse_rms.begin(), c.forward.inverse_rms.end());
    const double h = reference::difference_step;
    const double bound =
        8 * std::numeric_limits<double>::epsilon() * size * static_cast<double>(d) / h +
        h * h / 6 * std::pow(steepness, 3) * size;
    ASSERT_LT(bound, 1e-4);  // otherwise the comparison would mean nothing
    const auto close = [&](std::size_t) { return bound; };
    expect_close(dx.values(),
                 reference::finite_difference([&](const auto& x) { return loss(x, c.gain); }, c.x),
                 close);
    expect_close(
        dgain.values(),
        reference::finite_difference([&](const auto& gain) { return loss(c.x, gain); }, c.gain),
        close);
  }
}

}  // namespace
}  // namespace trireme::kernels
