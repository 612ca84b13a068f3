// Rotary positions against a naive reference in double, and properties: parts of rows, scores that
// depend on distances alone, and the inverse.
#include <trireme/kernels/rotary.hpp>

#include <trireme/base/check.hpp>

#include <kernels/cases.hpp>
#include <reference/finite_difference.hpp>
#include <reference/rotary.hpp>
#include <support/device_array.hpp>
#include <support/numbers.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace trireme::kernels {
namespace {

using testing::DeviceArray;
using testing::expect_close;
using testing::random_numbers;

template <class T>
class RotaryPositions : public ::testing::Test {};
TYPED_TEST_SUITE(RotaryPositions, WideTypes);

constexpr std::int64_t beside = 5;  // columns after the rotated heads

/// Two terms of at most |a| and |b| with three roundings each to T. The angle's error in double:
/// position e^-u with u <= ln(theta) < 14 is off by u eps, and 4 roundings around it.
template <class T>
double bound_of(const std::vector<double>& x, std::size_t i, std::int64_t columns,
                const Rotary& r) {
  const auto half = static_cast<std::size_t>(r.head_size / 2);
  const std::size_t column = i % static_cast<std::size_t>(columns);
  if (column >= static_cast<std::size_t>(r.heads * r.head_size)) return 0;
  const bool lower = column % static_cast<std::size_t>(r.head_size) < half;
  const double size = std::abs(x[i]) + std::abs(x[lower ? i + half : i - half]);
  const auto row = static_cast<std::int64_t>(i) / columns;
  const auto position = static_cast<double>(reference::rotary_position(r, row));
  return size * (4 * std::numeric_limits<T>::epsilon() +
                 18 * position * std::numeric_limits<double>::epsilon());
}

TYPED_TEST(RotaryPositions, ForwardMatchesReferenceAndKeepsOtherColumns) {
  using T = TypeParam;
  for (const std::int64_t rows : {1, 13, 128})
    for (const std::int64_t heads : {1, 13})
      for (const std::int64_t size : {2, 26, 128, 268}) {
        const Rotary r{heads, size, 10000.0, 61, 7, 3};
        const std::int64_t columns = heads * size + beside;
        const auto x = random_numbers<T>(rows * columns, 1);
        const DeviceArray<T> d_x(x);
        rotary_forward<T>(Exec{}, d_x.matrix(rows, columns), r);
        expect_close(d_x.values(), reference::rotary(x, columns, r),
                     [&](std::size_t i) { return bound_of<T>(x, i, columns, r); });
      }
}

/// One factor for all pairs, a ramp over pairs, and a ramp over frequencies.
TYPED_TEST(RotaryPositions, ScaledFrequenciesMatchReference) {
  using T = TypeParam;
  for (const RotaryScaling& scaling : {RotaryScaling{2.5, 1}, RotaryScaling{4, -0.2, 0.15, 0, 1.2},
                                       RotaryScaling{8, 1.3, 0, -3}}) {
    Rotary r{3, 26, 100.0, 61, 7, 3};
    r.scaling = scaling;
    const std::int64_t columns = 3 * 26 + beside;
    const auto x = random_numbers<T>(64 * columns, 1);
    const DeviceArray<T> d_x(x);
    rotary_forward<T>(Exec{}, d_x.matrix(64, columns), r);
    expect_close(d_x.values(), reference::rotary(x, columns, r),
                 [&](std::size_t i) { return scaling.magnitude * bound_of<T>(x, i, columns, r); });
  }
}

/// The last 10 of 16 columns of a head, as halves and as neighbours, against heads of 10 columns.
TYPED_TEST(RotaryPositions, ChangeTheLastColumnsOrNeighbours) {
  using T = TypeParam;
  constexpr std::int64_t rows = 13, heads = 3, columns = heads * 16 + beside;
  for (const bool interleaved : {false, true})
    for (const double direction : {1.0, -1.0}) {
      const auto x = random_numbers<T>(rows * columns, 1);
      /// Index in x of column i of the head of 10 columns that is rotated as halves.
      const auto place = [&](std::int64_t t, std::int64_t h, std::int64_t i) {
        const std::int64_t column = interleaved ? i % 5 * 2 + i / 5 : i;
        return static_cast<std::size_t>(t * columns + h * 16 + 6 + column);
      };
      std::vector<double> narrow;
      for (std::int64_t t = 0; t < rows; ++t)
        for (std::int64_t h = 0; h < heads; ++h)
          for (std::int64_t i = 0; i < 10; ++i) narrow.push_back(x[place(t, h, i)]);
      const DeviceArray<T> d_x(x), d_narrow(narrow);
      Rotary last{heads, 16, 100.0, 7}, whole{heads, 10, 100.0, 7};
      last.size = 10;
      last.interleaved = interleaved;
      last.scaling = whole.scaling = {4, -0.2, 0.15, 0, 1.2};
      const auto turn = [&](const DeviceArray<T>& of, std::int64_t n, const Rotary& r) {
        if (direction > 0)
          rotary_forward<T>(Exec{}, of.matrix(rows, n), r);
        else
          rotary_backward<T>(Exec{}, of.matrix(rows, n), r);
      };
      turn(d_x, columns, last);
      turn(d_narrow, heads * 10, whole);
      std::vector<double> expected = x;
      const auto turned = d_narrow.values();
      std::size_t k = 0;
      for (std::int64_t t = 0; t < rows; ++t)
        for (std::int64_t h = 0; h < heads; ++h)
          for (std::int64_t i = 0; i < 10; ++i)
            expected[place(t, h, i)] = static_cast<double>(turned[k++]);
      // Both have the same terms, which the compiler may contract differently.
      expect_close(d_x.values(), expected, [&](std::size_t i) {
        return 8 * std::numeric_limits<T>::epsilon() * (1 + std::abs(x[i]));
      });
    }
  const DeviceArray<T> x(32);
  Rotary odd{1, 32, 100.0};
  for (const std::int64_t size : {5, 34}) {
    odd.size = size;
    EXPECT_THROW(rotary_forward<T>(Exec{}, x.matrix(1, 32), odd), Error);
  }
}

TYPED_TEST(RotaryPositions, PartsOfTheRowsHaveTheSameBits) {
  using T = TypeParam;
  const Rotary whole{3, 24, 500000.0, 13};
  const std::int64_t columns = 72;
  const DeviceArray<T> all(random_numbers<T>(40 * columns, 1));
  const DeviceArray<T> cut(all.values());
  rotary_forward<T>(Exec{}, all.matrix(40, columns), whole);
  for (const auto& [first, count] : {std::pair{0, 17}, {17, 1}, {18, 22}}) {
    Rotary part = whole;
    part.first_row = first;
    const View2<T> rows(cut.data() + first * columns, static_cast<std::size_t>(count), 72);
    rotary_forward<T>(Exec{}, rows, part);
  }
  EXPECT_EQ(cut.values(), all.values());
}

TYPED_TEST(RotaryPositions, RowsAtGivenPositionsMatchTheSample) {
  using T = TypeParam;
  const DeviceArray<T> sample(random_numbers<T>(13 * 72, 1));
  const std::vector<T> before = sample.values();
  rotary_forward<T>(Exec{}, sample.matrix(13, 72), Rotary{3, 24, 10000.0, 13});
  const std::vector<T> turned = sample.values();
  const std::vector<std::int32_t> positions{5, 12, 0, 5, 6};
  std::vector<T> some, expected;
  for (const std::int32_t p : positions) {
    some.insert(some.end(), before.begin() + 72 * p, before.begin() + 72 * (p + 1));
    expected.insert(expected.end(), turned.begin() + 72 * p, turned.begin() + 72 * (p + 1));
  }
  const DeviceArray<T> rows(some);
  const DeviceArray<std::int32_t> at(positions);
  Rotary alone{3, 24, 10000.0};
  alone.positions = at.flat();
  rotary_forward<T>(Exec{}, rows.matrix(5, 72), alone);
  EXPECT_EQ(rows.values(), expected);
}

TYPED_TEST(RotaryPositions, ScoresDependOnlyOnDistances) {
  using T = TypeParam;
  const std::int64_t size = 24;
  const auto q = random_numbers<T>(size, 1);
  const auto k = random_numbers<T>(size, 2);
  const auto score = [&](std::int64_t query, std::int64_t key) {
    const DeviceArray<T> d_q(q), d_k(k);
    Rotary r{1, size, 10000.0, 1000};
    r.first_row = query;
    rotary_forward<T>(Exec{}, d_q.matrix(1, size), r);
    r.first_row = key;
    rotary_forward<T>(Exec{}, d_k.matrix(1, size), r);
    const auto a = d_q.values(), b = d_k.values();
    double product = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
      product += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    return product;
  };
  // Each rotated element is off by bound_of; |x| <= 2 norms of its pair, q k <= (q² + k²) / 2.
  double squares = 0;
  for (std::size_t i = 0; i < q.size(); ++i) squares += q[i] * q[i] + k[i] * k[i];
  const double bound =
      2 * 2 * squares *
      (4 * std::numeric_limits<T>::epsilon() + 18 * 107 * std::numeric_limits<double>::epsilon());
  EXPECT_NEAR(score(107, 100), score(7, 0), bound);
  EXPECT_GT(std::abs(score(7, 0) - score(8, 0)), 100 * bound);
}

TEST(RotaryGradient, BackwardMatchesFiniteDifferences) {
  Rotary r{2, 26, 10000.0, 13, 4};
  r.scaling = {4, -0.2, 0.15, 0, 1.2};
  const std::int64_t columns = 2 * 26 + beside;
  const auto x = random_numbers<double>(3 * columns, 1);
  const auto dy = random_numbers<double>(3 * columns, 2);
  const DeviceArray<double> dx(dy);
  rotary_backward<double>(Exec{}, dx.matrix(3, columns), r);
  const auto loss = [&](const auto& at) {
    return reference::dot(dy, reference::rotary(at, columns, r));
  };
  double size = 0;
  for (std::size_t i = 0; i < x.size(); ++i) size += 2 * std::abs(x[i] * dy[i]);
  // The function is linear: the only error is cancellation in a sum of n terms.
  const double bound = 8 * std::numeric_limits<double>::epsilon() * size *
                       static_cast<double>(x.size()) / reference::difference_step;
  ASSERT_LT(bound, 1e-4);
  expect_close(dx.values(), reference::finite_difference(loss, x),
               [&](std::size_t) { return bound; });
}

TEST(RotaryGradient, BackwardInvertsForward) {
  const Rotary r{2, 26, 10000.0, 13};
  const auto x = random_numbers<float>(5 * 52, 1);
  const DeviceArray<float> d_x(x);
  rotary_forward<float>(Exec{}, d_x.matrix(5, 52), r);
  rotary_backward<float>(Exec{}, d_x.matrix(5, 52), r);
  // The bound of one rotation, and that of the other on elements up to |a| + |b|.
  expect_close(d_x.values(), x, [&](std::size_t i) { return 3 * bound_of<float>(x, i, 52, r); });
}

TEST(RotaryGradient, RejectsOddHeadsAndNarrowRows) {
  const DeviceArray<float> x(26);
  EXPECT_THROW(rotary_forward<float>(Exec{}, x.matrix(2, 13), Rotary{1, 13}), Error);
  EXPECT_THROW(rotary_forward<float>(Exec{}, x.matrix(2, 13), Rotary{4, 4}), Error);
}

}  // namespace
}  // namespace trireme::kernels
