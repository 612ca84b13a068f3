#include <trireme/kernels/rows.hpp>

#include <trireme/kernels/packs.hpp>
#include <trireme/tensor/expect.hpp>

namespace trireme::kernels {

template <class T>
void pick_rows(const Exec& exec, View2<T> y, View2<const T> x, View1<const std::int32_t> rows,
               std::int64_t first_row) {
  const std::int64_t count = extent(rows, 0);
  const std::int64_t held = extent(x, 0);
  const std::int64_t hidden = extent(x, 1);
  expect_shape(y, "y", {count, hidden});
  for_rows(
      "kernels/pick_rows", exec, count, KOKKOS_LAMBDA(const Team& team, std::int64_t q) {
        const std::int64_t row = rows(q) - first_row;
        T* y_row = row_of(y, q);
        if (row >= 0 && row < held) {
          const T* x_row = row_of(x, row);
          copy_lanes(team, hidden, y_row, x_row);
        } else {
          map_lanes(team, hidden, y_row, [](std::int64_t) { return T(0); });
        }
      });
}

template <class T>
void place_rows(const Exec& exec, View2<T> x, View2<const T> y, View1<const std::int32_t> rows,
                std::int64_t first_row) {
  const std::int64_t count = extent(rows, 0);
  const std::int64_t held = extent(x, 0);
  const std::int64_t hidden = extent(x, 1);
  expect_shape(y, "y", {count, hidden});
  for_rows(
      "kernels/place_rows", exec, count, KOKKOS_LAMBDA(const Team& team, std::int64_t q) {
        const std::int64_t row = rows(q) - first_row;
        if (row < 0 || row >= held) return;
        T* x_row = row_of(x, row);
        const T* y_row = row_of(y, q);
        copy_lanes(team, hidden, x_row, y_row);
      });
}

#define TRIREME_INSTANTIATE(T)                                                                  \
  template void pick_rows<T>(const Exec&, View2<T>, View2<const T>, View1<const std::int32_t>,  \
                             std::int64_t);                                                     \
  template void place_rows<T>(const Exec&, View2<T>, View2<const T>, View1<const std::int32_t>, \
                              std::int64_t);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(Bf16)
TRIREME_INSTANTIATE(Fp16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
