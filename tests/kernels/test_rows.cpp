#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/embedding.hpp>

#include <kernels/cases.hpp>
#include <kernels/tokens.hpp>
#include <reference/parts.hpp>
#include <support/device_array.hpp>
#include <support/numbers.hpp>

#include <gtest/gtest.h>

#include <limits>
#include <vector>

/// Selected rows of a matrix, and rows of two segments: whole and in parts, as ranks hold them.
namespace trireme::kernels {
namespace {

using reference::uneven_parts;
using testing::DeviceArray;
using testing::expect_close;
using testing::random_numbers;
using testing::rows_of;

template <class T>
class Rows : public ::testing::Test {};
TYPED_TEST_SUITE(Rows, WideTypes);

/// Every third row of n, from the last on.
std::vector<std::int32_t> some_rows(std::int64_t n) {
  std::vector<std::int32_t> rows;
  for (std::int64_t r = n - 1; r >= 0; r -= 3) rows.push_back(static_cast<std::int32_t>(r));
  return rows;
}

TYPED_TEST(Rows, PartsSumToThePickedRows) {
  using T = TypeParam;
  for (const std::int64_t n : small_sizes)
    for (const std::int64_t hidden : small_sizes)
      for (const std::int64_t parts : {1, 2, 5}) {
        const auto x = random_numbers<T>(n * hidden, 1);
        const auto rows = some_rows(n);
        const auto count = static_cast<std::int64_t>(rows.size());
        const DeviceArray<T> d_x(x), y(count * hidden), sum(count * hidden);
        const DeviceArray<std::int32_t> d_rows(rows);
        const auto begins = uneven_parts(n, parts);
        for (std::size_t p = 0; p + 1 < begins.size(); ++p) {
          pick_rows<T>(Exec{}, y.matrix(count, hidden),
                       rows_of(d_x, hidden, begins[p], begins[p + 1]), d_rows.flat(), begins[p]);
          accumulate<T>(Exec{}, sum.flat(), y.flat());
        }
        std::vector<T> expected;
        for (const std::int32_t r : rows)
          for (std::int64_t d = 0; d < hidden; ++d)
            expected.push_back(static_cast<T>(x[static_cast<std::size_t>(r * hidden + d)]));
        EXPECT_EQ(sum.values(), expected);
      }
}

TYPED_TEST(Rows, PlacingRowsKeepsOtherRows) {
  using T = TypeParam;
  const std::int64_t n = 13, hidden = 5;
  const auto rows = some_rows(n);
  const auto count = static_cast<std::int64_t>(rows.size());
  const DeviceArray<T> x(random_numbers<T>(n * hidden, 1)), picked(count * hidden);
  const DeviceArray<std::int32_t> d_rows(rows);
  pick_rows<T>(Exec{}, picked.matrix(count, hidden), x.matrix(n, hidden), d_rows.flat(), 0);
  const DeviceArray<T> y(n * hidden);
  fill<T>(Exec{}, y.flat(), 7.0);
  const auto begins = uneven_parts(n, 3);
  for (std::size_t p = 0; p + 1 < begins.size(); ++p)
    place_rows<T>(Exec{}, rows_of(y, hidden, begins[p], begins[p + 1]),
                  picked.matrix(count, hidden), d_rows.flat(), begins[p]);
  const auto before = x.values();
  const auto after = y.values();
  for (std::int64_t r = 0; r < n; ++r)
    for (std::int64_t d = 0; d < hidden; ++d) {
      const auto at = static_cast<std::size_t>(r * hidden + d);
      EXPECT_EQ(after[at], (n - 1 - r) % 3 == 0 ? before[at] : T(7)) << r;
    }
}

TYPED_TEST(Rows, SegmentsAddRowsAndSumGradients) {
  using T = TypeParam;
  for (const std::int64_t n : small_sizes)
    for (const std::int64_t hidden : small_sizes) {
      std::vector<std::int32_t> segments;
      for (std::int64_t r = 0; r < n; ++r) segments.push_back(r % 5 < 2 ? 0 : 1);
      const auto table = random_numbers<T>(2 * hidden, 1);
      const auto dx = random_numbers<T>(n * hidden, 2);
      const DeviceArray<std::int32_t> d_segments(segments);
      const DeviceArray<T> d_table(table), x(n * hidden), d_dx(dx);
      const DeviceArray<Accumulate<T>> dtable(2 * hidden);
      const auto begins = uneven_parts(n, 3);
      for (std::size_t p = 0; p + 1 < begins.size(); ++p) {
        add_segments<T>(Exec{}, rows_of(x, hidden, begins[p], begins[p + 1]),
                        d_table.matrix(2, hidden), d_segments.flat(), begins[p]);
        segments_backward<T>(Exec{}, dtable.matrix(2, hidden),
                             rows_of(d_dx, hidden, begins[p], begins[p + 1]), d_segments.flat(),
                             begins[p]);
      }
      std::vector<T> expected;
      std::vector<double> sums(static_cast<std::size_t>(2 * hidden));
      double largest = 0;
      for (std::int64_t r = 0; r < n; ++r)
        for (std::int64_t d = 0; d < hidden; ++d) {
          const auto at =
              static_cast<std::size_t>(segments[static_cast<std::size_t>(r)] * hidden + d);
          expected.push_back(static_cast<T>(table[at]));
          sums[at] += dx[static_cast<std::size_t>(r * hidden + d)];
          largest = std::max(largest, std::abs(dx[static_cast<std::size_t>(r * hidden + d)]));
        }
      EXPECT_EQ(x.values(), expected);
      // n roundings of sums below n times the largest term.
      const double bound = static_cast<double>(n * n) * largest *
                           static_cast<double>(std::numeric_limits<Accumulate<T>>::epsilon());
      expect_close(dtable.values(), sums, [&](std::size_t) { return bound; });
    }
}

}  // namespace
}  // namespace trireme::kernels
