// Norms of the rows of a matrix, and multiplication of each column by its own factor.
#include <trireme/kernels/weight_norm.hpp>

#include <trireme/kernels/packs.hpp>
#include <trireme/tensor/expect.hpp>

#include <Kokkos_Core.hpp>

namespace trireme::kernels {

template <class T>
void row_squares(const Exec& exec, View1<Accumulate<T>> squares, View2<const T> v) {
  using Acc = Accumulate<T>;
  const std::int64_t columns = extent(v, 1);
  expect_shape(squares, "squares", {extent(v, 0)});
  for_rows(
      "kernels/row_squares", exec, extent(v, 0), KOKKOS_LAMBDA(const Team& team, std::int64_t n) {
        const Acc sum = sum_of<Acc>(
            team, columns, [](std::int64_t, Acc x) { return x * x; }, row_of(v, n));
        once(team, [&]() { squares(n) = sum; });
      });
}

template <class T>
void row_magnitudes(const Exec& exec, View1<T> magnitude, View1<const Accumulate<T>> squares) {
  expect_shape(magnitude, "magnitude", {extent(squares, 0)});
  Kokkos::parallel_for(
      "kernels/row_magnitudes", Kokkos::RangePolicy<Exec>(exec, 0, squares.extent(0)),
      KOKKOS_LAMBDA(std::int64_t n) { magnitude(n) = static_cast<T>(math::sqrt(squares(n))); });
}

template <class T>
void row_scales(const Exec& exec, View1<Accumulate<T>> scale, View1<Accumulate<T>> inverse,
                View1<const Accumulate<T>> squares, View1<const T> magnitude) {
  using Acc = Accumulate<T>;
  expect_shape(scale, "scale", {extent(squares, 0)});
  expect_shape(inverse, "inverse", {extent(squares, 0)});
  expect_shape(magnitude, "magnitude", {extent(squares, 0)});
  Kokkos::parallel_for(
      "kernels/row_scales", Kokkos::RangePolicy<Exec>(exec, 0, squares.extent(0)),
      KOKKOS_LAMBDA(std::int64_t n) {
        const Acc square = squares(n);
        const Acc one_over = square > 0 ? Acc(1) / math::sqrt(square) : Acc(0);
        scale(n) = static_cast<Acc>(magnitude(n)) * one_over;
        inverse(n) = one_over;
      });
}

template <class T>
void scale_columns(const Exec& exec, View2<T> y, View2<const T> x, View1<const Accumulate<T>> scale,
                   View1<const T> bias) {
  using Acc = Accumulate<T>;
  const std::int64_t columns = extent(x, 1);
  expect_shape(y, "y", {extent(x, 0), columns});
  expect_shape(scale, "scale", {columns});
  if (bias.extent(0) > 0) expect_shape(bias, "bias", {columns});
  const bool adds = bias.extent(0) > 0;
  for_rows(
      "kernels/scale_columns", exec, extent(x, 0), KOKKOS_LAMBDA(const Team& team, std::int64_t t) {
        T* to = row_of(y, t);
        const T* from = row_of(x, t);
        if (adds)
          map_lanes(
              team, columns, to, [](std::int64_t, Acc v, Acc s, Acc b) { return s * v + b; }, from,
              scale.data(), bias.data());
        else
          map_lanes(
              team, columns, to, [](std::int64_t, Acc v, Acc s) { return s * v; }, from,
              scale.data());
      });
}

template <class T>
void magnitude_terms(const Exec& exec, View2<T> z, View2<const T> dy,
                     View1<const Accumulate<T>> inverse) {
  using Acc = Accumulate<T>;
  const std::int64_t columns = extent(z, 1);
  expect_shape(dy, "dy", {extent(z, 0), columns});
  expect_shape(inverse, "inverse", {columns});
  for_rows(
      "kernels/magnitude_terms", exec, extent(z, 0),
      KOKKOS_LAMBDA(const Team& team, std::int64_t t) {
        T* to = row_of(z, t);
        map_lanes(
            team, columns, to, [](std::int64_t, Acc v, Acc d, Acc r) { return v * d * r; }, to,
            row_of(dy, t), inverse.data());
      });
}

#define TRIREME_INSTANTIATE(T)                                                         \
  template void row_squares<T>(const Exec&, View1<Accumulate<T>>, View2<const T>);     \
  template void row_magnitudes<T>(const Exec&, View1<T>, View1<const Accumulate<T>>);  \
  template void row_scales<T>(const Exec&, View1<Accumulate<T>>, View1<Accumulate<T>>, \
                              View1<const Accumulate<T>>, View1<const T>);             \
  template void scale_columns<T>(const Exec&, View2<T>, View2<const T>,                \
                                 View1<const Accumulate<T>>, View1<const T>);          \
  template void magnitude_terms<T>(const Exec&, View2<T>, View2<const T>,              \
                                   View1<const Accumulate<T>>)
TRIREME_INSTANTIATE(float);
TRIREME_INSTANTIATE(double);
TRIREME_INSTANTIATE(Bf16);
TRIREME_INSTANTIATE(Fp16);
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
