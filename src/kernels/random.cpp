#include <trireme/base/check.hpp>
#include <trireme/kernels/lanes.hpp>
#include <trireme/kernels/random.hpp>
#include <trireme/tensor/expect.hpp>

namespace trireme::kernels {

namespace {

constexpr double two_pi = 6.28318530717958647693;

/// Element `index` of the normal array, standard deviation 1.
KOKKOS_FORCEINLINE_FUNCTION double normal(const RandomKey& key, std::int64_t index) {
  const Words4 words = philox(key, static_cast<std::uint64_t>(index) / 2);
  const int pair = static_cast<int>(index % 2) * 2;
  const double u = uniform_from_word(words.w[pair]);
  const double v = uniform_from_word(words.w[pair + 1]);
  return math::sqrt(-2.0 * math::log(u)) * math::cos(two_pi * v);
}

}  // namespace

template <class T>
void normal_fill(const Exec& exec, View1<T> x, const RandomKey& key, double standard_deviation,
                 std::int64_t first_index) {
  const RandomKey array = key;
  for_chunks(
      "kernels/normal_fill", exec, extent(x, 0),
      KOKKOS_LAMBDA(const Team& team, std::int64_t first, std::int64_t count) {
        T* part = x.data() + first;
        for_lanes(team, count, [&](std::int64_t i) {
          part[i] = static_cast<T>(standard_deviation * normal(array, first_index + first + i));
        });
      });
}

template <class T>
void normal_fill(const Exec& exec, View3<T> x, const RandomKey& key, double standard_deviation,
                 std::int64_t global_rows, std::int64_t first_row) {
  const std::int64_t rows = extent(x, 1);
  const std::int64_t inner = extent(x, 2);
  check(first_row >= 0 && first_row + rows <= global_rows, "rows [", first_row, ", ",
        first_row + rows, ") are not within the ", global_rows, " of the global array");
  const RandomKey array = key;
  for_rows(
      "kernels/normal_fill", exec, extent(x, 0) * rows,
      KOKKOS_LAMBDA(const Team& team, std::int64_t r) {
        const std::int64_t outer = r / rows;
        const std::int64_t row = r % rows;
        T* part = &x(outer, row, 0);
        const std::int64_t start = (outer * global_rows + first_row + row) * inner;
        for_lanes(team, inner, [&](std::int64_t i) {
          part[i] = static_cast<T>(standard_deviation * normal(array, start + i));
        });
      });
}

#define TRIREME_INSTANTIATE(T)                                                                 \
  template void normal_fill<T>(const Exec&, View1<T>, const RandomKey&, double, std::int64_t); \
  template void normal_fill<T>(const Exec&, View3<T>, const RandomKey&, double, std::int64_t,  \
                               std::int64_t);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(double)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
