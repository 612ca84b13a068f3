// Random initial values: each element depends only on the key and on its index in the global array.
#include <trireme/kernels/random.hpp>

#include <trireme/base/check.hpp>
#include <trireme/kernels/lanes.hpp>
#include <trireme/tensor/expect.hpp>

#include <algorithm>

namespace trireme::kernels {

namespace {

constexpr double two_pi = 6.28318530717958647693;

/// part[i] = element start + i of the global array, i in [0, count). Four words give two elements.
template <class T>
KOKKOS_FORCEINLINE_FUNCTION void normal_part(const Team& team, T* part, const RandomKey& key,
                                             double standard_deviation, std::int64_t start,
                                             std::int64_t count) {
  const std::int64_t skip = start % 2;
  for_lanes(team, (skip + count + 1) / 2, [&](std::int64_t block) {
    const Words4 words = philox(key, static_cast<std::uint64_t>(start / 2 + block));
    for (int half = 0; half < 2; ++half) {
      const std::int64_t i = 2 * block + half - skip;
      if (i < 0 || i >= count) continue;
      const double u = uniform_from_word(words.w[2 * half]);
      const double v = uniform_from_word(words.w[2 * half + 1]);
      part[i] = static_cast<T>(standard_deviation * math::sqrt(-2.0 * math::log(u)) *
                               math::cos(two_pi * v));
    }
  });
}

}  // namespace

template <class T>
void normal_fill(const Exec& exec, View1<T> x, const RandomKey& key, double standard_deviation,
                 std::int64_t first_index) {
  const RandomKey array = key;
  for_chunks(
      "kernels/normal_fill", exec, extent(x, 0),
      KOKKOS_LAMBDA(const Team& team, std::int64_t first, std::int64_t count) {
        normal_part(team, x.data() + first, array, standard_deviation, first_index + first, count);
      });
}

template <class T>
void normal_fill(const Exec& exec, View3<T> x, const RandomKey& key, double standard_deviation,
                 std::int64_t global_rows, std::int64_t first_row, std::int64_t first_outer) {
  const std::int64_t rows = extent(x, 1);
  const std::int64_t inner = extent(x, 2);
  check(first_row >= 0 && first_row + rows <= global_rows, "rows [", first_row, ", ",
        first_row + rows, ") are not within the ", global_rows, " of the global array");
  if (inner == 0) return;
  const RandomKey array = key;
  for_rows(
      "kernels/normal_fill", exec, extent(x, 0) * rows,
      KOKKOS_LAMBDA(const Team& team, std::int64_t r) {
        const std::int64_t outer = r / rows;
        const std::int64_t row = r % rows;
        T* part = &x(outer, row, 0);
        const std::int64_t start = ((first_outer + outer) * global_rows + first_row + row) * inner;
        normal_part(team, part, array, standard_deviation, start, inner);
      });
}

template <class T>
void uniform_fill(const Exec& exec, View3<T> x, const RandomKey& key, double bound,
                  std::int64_t global_rows, std::int64_t first_row, std::int64_t first_outer) {
  const std::int64_t rows = extent(x, 1);
  const std::int64_t inner = extent(x, 2);
  check(first_row >= 0 && first_row + rows <= global_rows, "rows [", first_row, ", ",
        first_row + rows, ") are not within the ", global_rows, " of the global array");
  const RandomKey array = key;
  for_rows(
      "kernels/uniform_fill", exec, extent(x, 0) * rows,
      KOKKOS_LAMBDA(const Team& team, std::int64_t r) {
        T* part = x.data() + r * inner;
        const std::int64_t start =
            ((first_outer + r / rows) * global_rows + first_row + r % rows) * inner;
        for_lanes(team, inner, [&](std::int64_t i) {
          const auto word = static_cast<std::uint64_t>(start + i);
          const double u = uniform_from_word(philox(array, word / 4).w[word % 4]);
          part[i] = static_cast<T>(bound * (2 * u - 1));
        });
      });
}

template <class T>
void fill_operand(const Exec& exec, View1<T> x, std::uint32_t number) {
  constexpr std::int64_t period = 1 << 22;  // a longer period would take hosts more time
  const std::int64_t n = extent(x, 0);
  const auto part = [&](std::int64_t first) {
    const std::int64_t count = std::min(n - first, period);
    return View1<T>(x.data() + first, static_cast<std::size_t>(count));
  };
  normal_fill<T>(exec, part(0), RandomKey{1, Purpose::initialisation, 0, number}, 1.0, 0);
  for (std::int64_t first = period; first < n; first += period) {
    const View1<T> to = part(first);
    Kokkos::deep_copy(exec, to, View1<const T>(x.data(), to.extent(0)));
  }
}

#define TRIREME_INSTANTIATE(T)                                                                 \
  template void normal_fill<T>(const Exec&, View1<T>, const RandomKey&, double, std::int64_t); \
  template void normal_fill<T>(const Exec&, View3<T>, const RandomKey&, double, std::int64_t,  \
                               std::int64_t, std::int64_t);                                    \
  template void uniform_fill<T>(const Exec&, View3<T>, const RandomKey&, double, std::int64_t, \
                                std::int64_t, std::int64_t);                                   \
  template void fill_operand<T>(const Exec&, View1<T>, std::uint32_t);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(Bf16)
TRIREME_INSTANTIATE(Fp16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
