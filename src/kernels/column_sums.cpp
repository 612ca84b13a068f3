// Sums over the rows of a matrix: by groups of rows on hosts, by slices of rows on devices
// (column_slices.hpp). Either order of additions depends only on the shape.
#include <trireme/kernels/column_sums.hpp>
#include <trireme/kernels/lanes.hpp>
#include <trireme/tensor/expect.hpp>

#include <algorithm>

namespace trireme::kernels {
namespace {

/// Host: sums groups of 64 rows, then the groups, so that rounding errors grow with T/64 + 64.
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

template <class T>
struct Element {
  const T* x;
  std::int64_t stride;

  KOKKOS_FUNCTION void operator()(std::int64_t t, std::int64_t n, Accumulate<T>* v) const {
    v[0] = static_cast<Accumulate<T>>(x[t * stride + n]);
  }
};

/// Terms of one element of the matrix in the gradients of a norm's gain and bias.
template <class T, bool with_bias>
struct NormTerm {
  using Acc = Accumulate<T>;
  const T* dy;
  const T* x;
  std::int64_t dy_stride, x_stride;
  const Acc* mean;  ///< null: all means are 0
  const Acc* scale;

  KOKKOS_FUNCTION void operator()(std::int64_t t, std::int64_t n, Acc* v) const {
    const Acc gradient = static_cast<Acc>(dy[t * dy_stride + n]);
    const Acc value = static_cast<Acc>(x[t * x_stride + n]);
    const Acc mu = mean == nullptr ? Acc(0) : mean[t];
    v[0] = gradient * ((value - mu) * scale[t]);
    if constexpr (with_bias) v[1] = gradient;
  }
};

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
  expect_shape(sum, "sum", {extent(x, 1)});
  sum_by_slices<Sum, 1>("kernels/linear_backward_bias", "kernels/linear_backward_bias_slices", exec,
                        {{sum.data()}}, extent(x, 0), extent(x, 1),
                        Element<T>{x.data(), static_cast<std::int64_t>(x.stride(0))}, partial);
}

template <class T>
void add_norm_sums_by_slices(const char* label, const Exec& exec, View1<Accumulate<T>> dgain,
                             View1<Accumulate<T>> dbias, View2<const T> dy, View2<const T> x,
                             View1<const Accumulate<T>> mean, View1<const Accumulate<T>> scale,
                             View1<Accumulate<T>> partial) {
  using Sum = Accumulate<T>;
  const auto run = [&]<int kinds>(const Kokkos::Array<Sum*, kinds>& to) {
    sum_by_slices<Sum, kinds>(
        label, "kernels/norm_backward_weight_slices", exec, to, extent(x, 0), extent(x, 1),
        NormTerm<T, kinds == 2>{dy.data(), x.data(), static_cast<std::int64_t>(dy.stride(0)),
                                static_cast<std::int64_t>(x.stride(0)), mean.data(), scale.data()},
        partial);
  };
  if (dbias.extent(0) > 0)
    run.template operator()<2>({{dgain.data(), dbias.data()}});
  else
    run.template operator()<1>({{dgain.data()}});
}

template <class T>
void add_norm_sums(const char* label, const Handle& handle, View1<Accumulate<T>> dgain,
                   View1<Accumulate<T>> dbias, View2<const T> dy, View2<const T> x,
                   View1<const Accumulate<T>> mean, View1<const Accumulate<T>> scale) {
  add_norm_sums_by_slices<T>(label, handle, dgain, dbias, dy, x, mean, scale,
                             handle.partial_sums<Accumulate<T>>());
}

template <class T>
void add_column_sums(const Handle& handle, View1<Accumulate<T>> sum, View2<const T> x) {
  if constexpr (exec_on_host)
    add_column_sums_by_blocks<T>(handle, sum, x);
  else
    add_column_sums_by_slices<T>(handle, sum, x, handle.partial_sums<Accumulate<T>>());
}

#define TRIREME_INSTANTIATE(T)                                                                     \
  template void add_column_sums<T>(const Handle&, View1<Accumulate<T>>, View2<const T>);           \
  template void add_column_sums_by_slices<T>(const Exec&, View1<Accumulate<T>>, View2<const T>,    \
                                             View1<Accumulate<T>>);                                \
  template void add_norm_sums_by_slices<T>(const char*, const Exec&, View1<Accumulate<T>>,         \
                                           View1<Accumulate<T>>, View2<const T>, View2<const T>,   \
                                           View1<const Accumulate<T>>, View1<const Accumulate<T>>, \
                                           View1<Accumulate<T>>);                                  \
  template void add_norm_sums<T>(const char*, const Handle&, View1<Accumulate<T>>,                 \
                                 View1<Accumulate<T>>, View2<const T>, View2<const T>,             \
                                 View1<const Accumulate<T>>, View1<const Accumulate<T>>)
TRIREME_INSTANTIATE(float);
TRIREME_INSTANTIATE(double);
TRIREME_INSTANTIATE(Bf16);
TRIREME_INSTANTIATE(Fp16);
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
