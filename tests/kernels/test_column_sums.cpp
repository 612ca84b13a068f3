#include <trireme/base/check.hpp>
#include <trireme/kernels/column_sums.hpp>
#include <trireme/tensor/fence.hpp>

#include "kernels/cases.hpp"
#include "support/device_array.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>

/// Sums of a matrix's columns, including the code for devices.
namespace trireme::kernels {
namespace {

using testing::DeviceArray;
using testing::uniform;

template <class T>
class ColumnSums : public ::testing::Test {};
TYPED_TEST_SUITE(ColumnSums, AllTypes);

using SumShape = std::tuple<std::int64_t, std::int64_t>;
const SumShape sum_shapes[] = {{1, 1},     {1, 200},   {7, 3},      {32, 5},          {33, 64},
                               {64, 65},   {1000, 13}, {4099, 1},   {517, 129},       {40, 4097},
                               {2, 70000}, {65, 5000}, {100, 2500}, {3, 131072 + 17}, {70, 65536}};

/// Rows are added in any order: n numbers within [-1, 1] and the initial one; Higham 2002, eq. 4.4.
template <class T>
double sum_bound(std::int64_t rows) {
  const double eps = std::numeric_limits<Accumulate<T>>::epsilon() / 2;
  return static_cast<double>(rows) * eps * static_cast<double>(rows + 1) * 1.01;
}

template <class T, class Add>
void expect_sums(const std::vector<T>& x, std::int64_t rows, std::int64_t columns, const Add& add) {
  const auto before = uniform<Accumulate<T>>(columns, 2);
  const DeviceArray<T> from(x);
  const DeviceArray<Accumulate<T>> sum(before);
  add(sum.flat(), from.matrix(rows, columns));
  fence(Exec{}, "test");
  const auto found = sum.values();
  for (std::int64_t n = 0; n < columns; ++n) {
    const auto at = static_cast<std::size_t>(n);
    double expected = before[at];
    for (std::int64_t t = 0; t < rows; ++t)
      expected += static_cast<double>(x[static_cast<std::size_t>(t * columns + n)]);
    ASSERT_NEAR(found[at], expected, sum_bound<T>(rows))
        << rows << " × " << columns << ", column " << n;
  }
}

TYPED_TEST(ColumnSums, MatchTheDefinition) {
  using T = TypeParam;
  for (const auto& [rows, columns] : sum_shapes)
    expect_sums<T>(
        uniform<T>(rows * columns, 1), rows, columns,
        [](View1<Accumulate<T>> sum, View2<const T> x) { add_column_sums<T>(Handle{}, sum, x); });
}

TYPED_TEST(ColumnSums, SumsBySlicesMatchTheDefinition) {
  using T = TypeParam;
  using Sum = Accumulate<T>;
  for (const auto& [rows, columns] : sum_shapes) {
    const std::int64_t room = column_slices(rows, columns).partial_elements(columns);
    // The workspace's content has no effect, and nothing after it is written.
    const DeviceArray<Sum> partial(room + 1, std::numeric_limits<Sum>::quiet_NaN());
    const auto x = uniform<T>(rows * columns, 1);
    expect_sums<T>(x, rows, columns, [&](View1<Sum> sum, View2<const T> from) {
      add_column_sums_by_slices<T>(Exec{}, sum, from,
                                   View1<Sum>(partial.data(), static_cast<std::size_t>(room)));
    });
    EXPECT_TRUE(std::isnan(partial.values().back()));
  }
}

TYPED_TEST(ColumnSums, SumsBySlicesAreReproducible) {
  using T = TypeParam;
  using Sum = Accumulate<T>;
  const std::int64_t rows = 3000, columns = 77;
  const DeviceArray<T> x(uniform<T>(rows * columns, 1));
  const DeviceArray<Sum> partial(column_slices(rows, columns).partial_elements(columns));
  std::vector<Sum> first;
  for (int i = 0; i < 3; ++i) {
    const DeviceArray<Sum> sum(columns);
    add_column_sums_by_slices<T>(Exec{}, sum.flat(), x.matrix(rows, columns), partial.flat());
    if (i == 0) first = sum.values();
    EXPECT_EQ(sum.values(), first);
  }
}

/// Sums for the gain and bias of LayerNorm, and for the gain of RMSNorm: without mean and bias.
TYPED_TEST(ColumnSums, SumsOfNormsMatchTheDefinition) {
  using T = TypeParam;
  using Sum = Accumulate<T>;
  for (const auto& [rows, columns] : sum_shapes) {
    if (rows * columns > 100'000) continue;
    for (const bool layer_norm : {true, false}) {
      const auto x = uniform<T>(rows * columns, 1);
      const auto dy = uniform<T>(rows * columns, 2);
      const auto mean = uniform<Sum>(rows, 3);
      const auto scale = uniform<Sum>(rows, 4);
      const auto before = uniform<Sum>(columns, 5);
      const DeviceArray<T> x_there(x), dy_there(dy);
      const DeviceArray<Sum> mean_there(mean), scale_there(scale), gain(before), bias(before);
      const std::int64_t sums = (layer_norm ? 2 : 1) * columns;
      const std::int64_t room = column_slices(rows, sums).partial_elements(sums);
      const DeviceArray<Sum> partial(room, std::numeric_limits<Sum>::quiet_NaN());
      add_norm_sums_by_slices<T>(
          "kernels/test", Exec{}, gain.flat(), layer_norm ? bias.flat() : View1<Sum>(),
          dy_there.matrix(rows, columns), x_there.matrix(rows, columns),
          layer_norm ? mean_there.flat() : View1<const Sum>(), scale_there.flat(), partial.flat());
      fence(Exec{}, "test");
      const auto gains = gain.values();
      const auto biases = bias.values();
      for (std::int64_t n = 0; n < columns; ++n) {
        const auto at = static_cast<std::size_t>(n);
        double of_gain = before[at];
        double of_bias = before[at];
        for (std::int64_t t = 0; t < rows; ++t) {
          const auto i = static_cast<std::size_t>(t * columns + n);
          const auto row = static_cast<std::size_t>(t);
          const double mu = layer_norm ? static_cast<double>(mean[row]) : 0;
          of_gain += static_cast<double>(dy[i]) * (static_cast<double>(x[i]) - mu) *
                     static_cast<double>(scale[row]);
          of_bias += static_cast<double>(dy[i]);
        }
        // Summands within [-2, 2], each of three roundings more.
        ASSERT_NEAR(gains[at], of_gain, 2 * sum_bound<T>(rows + 3));
        ASSERT_NEAR(biases[at], layer_norm ? of_bias : before[at], sum_bound<T>(rows));
      }
    }
  }
}

TEST(ColumnSlices, CoverAllRowsAndFitTheWorkspace) {
  for (const std::int64_t rows : {1, 31, 32, 33, 1000, 16384, 1 << 20})
    for (const std::int64_t columns : {1, 3, 768, 12288, 131072, 131073, 250000}) {
      const ColumnSlices slices = column_slices(rows, columns);
      EXPECT_GE(slices.count * slices.rows, rows);
      EXPECT_LT((slices.count - 1) * slices.rows, rows) << "an empty slice";
      EXPECT_LE(slices.partial_elements(columns), column_sum_threads);
    }
  EXPECT_EQ(column_slices(16384, 768).count, 169);  // of 97 rows: 129,792 threads
  EXPECT_EQ(column_slices(0, 5).count, 0);
}

TEST(ColumnSlices, RejectTooSmallAWorkspace) {
  const DeviceArray<float> x(128), sum(2), partial(3);
  EXPECT_THROW(
      add_column_sums_by_slices<float>(Exec{}, sum.flat(), x.matrix(64, 2), partial.flat()), Error);
}

}  // namespace
}  // namespace trireme::kernels
