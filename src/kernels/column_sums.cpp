#include <trireme/kernels/column_sums.hpp>
#include <trireme/kernels/lanes.hpp>
#include <trireme/kernels/matmul_workspace.hpp>
#include <trireme/tensor/expect.hpp>

#include <algorithm>

namespace trireme::kernels {
namespace {

/// Host: rows are added in groups of 64, and then the groups, so that rounding grows with T/64 +
/// 64.
template <class T>
void add_column_sums_by_blocks(const Exec& exec, View1<Accumulate<T>> sum, View2<const T> x) {
  using Sum = Accumulate<T>;
  constexpr int width = 64;
  constexpr std::int64_t group = 64;
  const std::int64_t rows = extent(x, 0);
  const std::int64_t columns = extent(x, 1);
  Kokkos::parallel_for(
      "kernels/linear_backward_bias",
      Kokkos::RangePolicy<Exec>(exec, 0, (columns + width - 1) / width),
      KOKKOS_LAMBDA(std::int64_t chunk) {
        const std::int64_t first = chunk * width;
        const auto count = static_cast<int>(columns - first < width ? columns - first : width);
        Sum total[width] = {};
        for (std::int64_t t0 = 0; t0 < rows; t0 += group) {
          const std::int64_t t1 = t0 + group < rows ? t0 + group : rows;
          Sum part[width] = {};
          for (std::int64_t t = t0; t < t1; ++t) {
            const T* __restrict row = &x(t, first);
            if (count == width) {
#pragma omp simd
              for (int n = 0; n < width; ++n) part[n] += static_cast<Sum>(row[n]);
            } else {
              for (int n = 0; n < count; ++n) part[n] += static_cast<Sum>(row[n]);
            }
          }
#pragma omp simd
          for (int n = 0; n < width; ++n) total[n] += part[n];
        }
        for (int n = 0; n < count; ++n) sum(first + n) += total[n];
      });
}

/// Σ of column n over the rows [begin, end): eight loads are under way at a time.
template <class T>
KOKKOS_FORCEINLINE_FUNCTION Accumulate<T> sum_rows(const T* x, std::int64_t stride,
                                                   std::int64_t begin, std::int64_t end) {
  using Sum = Accumulate<T>;
  Sum total = 0;
  std::int64_t t = begin;
  for (; t + 8 <= end; t += 8) {
    Sum v[8];
    for (int k = 0; k < 8; ++k) v[k] = static_cast<Sum>(x[(t + k) * stride]);
    total += ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
  }
  for (; t < end; ++t) total += static_cast<Sum>(x[t * stride]);
  return total;
}

}  // namespace

ColumnSlices column_slices(std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t fewest_rows = 32;
  if (rows == 0 || columns == 0) return {0, 0};
  const std::int64_t most = (rows + fewest_rows - 1) / fewest_rows;
  const std::int64_t wanted = std::clamp<std::int64_t>(column_sum_threads / columns, 1, most);
  const std::int64_t each = (rows + wanted - 1) / wanted;
  return {(rows + each - 1) / each, each};
}

template <class T>
void add_column_sums_by_slices(const Exec& exec, View1<Accumulate<T>> sum, View2<const T> x,
                               View1<Accumulate<T>> partial) {
  using Sum = Accumulate<T>;
  const std::int64_t rows = extent(x, 0);
  const std::int64_t columns = extent(x, 1);
  const auto stride = static_cast<std::int64_t>(x.stride(0));
  expect_shape(sum, "sum", {columns});
  const ColumnSlices slices = column_slices(rows, columns);
  if (slices.count == 0) return;
  check(extent(partial, 0) >= slices.partial_elements(columns), "sums of ", columns,
        " columns: room for ", extent(partial, 0), " partial sums, expected ",
        slices.partial_elements(columns));
  const std::int64_t count = slices.count;
  const std::int64_t each = slices.rows;
  const T* from = x.data();
  Sum* parts = partial.data();
  Sum* to = sum.data();
  Kokkos::parallel_for(
      "kernels/linear_backward_bias_slices", HostPolicy(exec, 0, count * columns),
      KOKKOS_LAMBDA(std::int64_t i) {
        const std::int64_t slice = i / columns;
        const std::int64_t n = i - slice * columns;
        const std::int64_t begin = slice * each;
        const std::int64_t end = begin + each < rows ? begin + each : rows;
        const Sum total = sum_rows(from + n, stride, begin, end);
        if (count == 1)
          to[n] += total;
        else
          parts[n * count + slice] = total;
      });
  if (count == 1) return;
  for_rows(
      "kernels/linear_backward_bias", exec, columns,
      KOKKOS_LAMBDA(const Team& team, std::int64_t n) {
        const Sum* column = parts + n * count;
        const Sum total =
            sum_lanes<Sum>(team, count, [&](std::int64_t slice) { return column[slice]; });
        once(team, [&]() { to[n] += total; });
      });
}

template <class T>
void add_column_sums(const Exec& exec, View1<Accumulate<T>> sum, View2<const T> x) {
  if constexpr (exec_on_host)
    add_column_sums_by_blocks<T>(exec, sum, x);
  else
    add_column_sums_by_slices<T>(exec, sum, x,
                                 matmul_workspace(exec).partial_sums<Accumulate<T>>());
}

#define TRIREME_INSTANTIATE(T)                                                                  \
  template void add_column_sums<T>(const Exec&, View1<Accumulate<T>>, View2<const T>);          \
  template void add_column_sums_by_slices<T>(const Exec&, View1<Accumulate<T>>, View2<const T>, \
                                             View1<Accumulate<T>>)
TRIREME_INSTANTIATE(float);
TRIREME_INSTANTIATE(double);
TRIREME_INSTANTIATE(Bf16);
TRIREME_INSTANTIATE(Fp16);
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
