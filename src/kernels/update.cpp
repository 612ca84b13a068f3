#include <trireme/kernels/update.hpp>

#include <trireme/base/check.hpp>
#include <trireme/kernels/lanes.hpp>
#include <trireme/tensor/expect.hpp>

#include <cmath>

namespace trireme::kernels {

template <class Real>
void squared_norm_blocks(const Exec& exec, View1<double> partial, View1<const Real> x) {
  const std::int64_t n = extent(x, 0);
  expect_shape(partial, "partial", {norm_blocks(n)});
  static_assert(norm_block == chunk_size, "a chunk of for_chunks is a block of the norm");
  for_chunks(
      "kernels/squared_norm_blocks", exec, n,
      KOKKOS_LAMBDA(const Team& team, std::int64_t first, std::int64_t count) {
        const Real* part = x.data() + first;
        const double sum = sum_lanes<double>(team, count, [&](std::int64_t i) {
          const auto value = static_cast<double>(part[i]);
          return value * value;
        });
        once(team, [&]() { partial(first / norm_block) = sum; });
      });
}

template <class Real>
void squared_norm_blocks(const Exec& exec, View1<double> partial, View1<const Real> x,
                         View1<const std::int64_t> begins, View1<const std::int64_t> ends) {
  const std::int64_t blocks = extent(partial, 0);
  expect_shape(begins, "begins", {blocks});
  expect_shape(ends, "ends", {blocks});
  for_rows(
      "kernels/squared_norm_blocks", exec, blocks, KOKKOS_LAMBDA(const Team& team, std::int64_t b) {
        const std::int64_t first = begins(b);
        const Real* part = x.data() + first;
        const double sum = sum_lanes<double>(team, ends(b) - first, [&](std::int64_t i) {
          const auto value = static_cast<double>(part[i]);
          return value * value;
        });
        once(team, [&]() { partial(b) = sum; });
      });
}

void segment_sums(const Exec& exec, View1<double> sums, View1<const double> partial,
                  View1<const std::int64_t> ends) {
  const std::int64_t segments = extent(ends, 0);
  expect_shape(sums, "sums", {segments});
  for_rows(
      "kernels/segment_sums", exec, segments, KOKKOS_LAMBDA(const Team& team, std::int64_t k) {
        const std::int64_t first = k == 0 ? 0 : ends(k - 1);
        const double* value = partial.data() + first;
        const double sum =
            sum_lanes<double>(team, ends(k) - first, [&](std::int64_t i) { return value[i]; });
        once(team, [&]() { sums(k) = sum; });
      });
}

void root_of_sum(const Exec& exec, View1<double> root, View1<const double> values) {
  const std::int64_t n = extent(values, 0);
  expect_shape(root, "root", {1});
  for_rows(
      "kernels/root_of_sum", exec, 1, KOKKOS_LAMBDA(const Team& team, std::int64_t) {
        const double* value = values.data();
        const double sum = sum_lanes<double>(team, n, [&](std::int64_t i) { return value[i]; });
        once(team, [&]() { root(0) = math::sqrt(sum); });
      });
}

template <class Real>
void count_non_finite(const Exec& exec, View1<std::int64_t> count, View1<const Real> x) {
  expect_shape(count, "count", {1});
  for_chunks(
      "kernels/count_non_finite", exec, extent(x, 0),
      KOKKOS_LAMBDA(const Team& team, std::int64_t first, std::int64_t elements) {
        const Real* part = x.data() + first;
        const int found = sum_lanes<int>(team, elements, [&](std::int64_t i) {
          const auto zero = part[i] - part[i];  // NaN for infinities and NaNs
          return zero == zero ? 0 : 1;
        });
        // Atomic, yet deterministic: the order of integer additions does not matter.
        once(team, [&]() {
          if (found > 0) Kokkos::atomic_add(&count(0), static_cast<std::int64_t>(found));
        });
      });
}

#define TRIREME_INSTANTIATE(Real)                                                                \
  template void squared_norm_blocks<Real>(const Exec&, View1<double>, View1<const Real>);        \
  template void squared_norm_blocks<Real>(const Exec&, View1<double>, View1<const Real>,         \
                                          View1<const std::int64_t>, View1<const std::int64_t>); \
  template void count_non_finite<Real>(const Exec&, View1<std::int64_t>, View1<const Real>);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(Bf16)
TRIREME_INSTANTIATE(Fp16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
