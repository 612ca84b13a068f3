#include <trireme/base/check.hpp>
#include <trireme/kernels/lanes.hpp>
#include <trireme/kernels/update.hpp>
#include <trireme/tensor/expect.hpp>

#include <cmath>

namespace trireme::kernels {

template <class Real>
void adamw_update(const Exec& exec, View1<Real> weight, View1<Real> m, View1<Real> v,
                  View1<const Real> gradient, const AdamW& adamw,
                  View1<const double> clip_coefficient) {
  const std::int64_t n = extent(weight, 0);
  expect_shape(m, "m", {n});
  expect_shape(v, "v", {n});
  expect_shape(gradient, "gradient", {n});
  expect_shape(clip_coefficient, "clip_coefficient", {1});
  check(adamw.step >= 1, "AdamW step ", adamw.step, ": steps count from 1");
  const auto step = static_cast<double>(adamw.step);
  const auto keep = static_cast<Real>(1.0 - adamw.learning_rate * adamw.weight_decay);
  const auto toward_gradient = static_cast<Real>(1.0 - adamw.beta1);
  const auto beta2 = static_cast<Real>(adamw.beta2);
  const auto toward_square = static_cast<Real>(1.0 - adamw.beta2);
  const auto step_size =
      static_cast<Real>(adamw.learning_rate / (1.0 - std::pow(adamw.beta1, step)));
  const auto root_correction =
      static_cast<Real>(1.0 / std::sqrt(1.0 - std::pow(adamw.beta2, step)));
  const auto epsilon = static_cast<Real>(adamw.epsilon);
  for_chunks(
      "kernels/adamw_update", exec, n,
      KOKKOS_LAMBDA(const Team& team, std::int64_t first, std::int64_t count) {
        const auto clip = static_cast<Real>(clip_coefficient(0));
        Real* w_part = weight.data() + first;
        Real* m_part = m.data() + first;
        Real* v_part = v.data() + first;
        const Real* g_part = gradient.data() + first;
        for_lanes(team, count, [&](std::int64_t i) {
          const Real g = clip * g_part[i];
          const Real new_m = m_part[i] + toward_gradient * (g - m_part[i]);
          const Real new_v = beta2 * v_part[i] + toward_square * g * g;
          m_part[i] = new_m;
          v_part[i] = new_v;
          w_part[i] = keep * w_part[i] -
                      step_size * (new_m / (math::sqrt(new_v) * root_correction + epsilon));
        });
      });
}

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

void clip_coefficient(const Exec& exec, View1<double> coefficient, View1<const double> norm,
                      double maximum) {
  expect_shape(coefficient, "coefficient", {1});
  expect_shape(norm, "norm", {1});
  check(maximum >= 0, "clipping norm ", maximum, ", expected 0 (no clipping) or more");
  for_rows(
      "kernels/clip_coefficient", exec, 1, KOKKOS_LAMBDA(const Team& team, std::int64_t) {
        once(team, [&]() {
          const double ratio = maximum / (norm(0) + 1e-6);
          coefficient(0) = maximum == 0 || ratio > 1 ? 1.0 : ratio;  // a NaN ratio stays NaN
        });
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
          const Real zero = part[i] - part[i];  // NaN for infinities and NaNs
          return zero == zero ? 0 : 1;
        });
        // Atomic, and yet deterministic: integers add in any order.
        once(team, [&]() {
          if (found > 0) Kokkos::atomic_add(&count(0), static_cast<std::int64_t>(found));
        });
      });
}

#define TRIREME_INSTANTIATE(Real)                                                                \
  template void adamw_update<Real>(const Exec&, View1<Real>, View1<Real>, View1<Real>,           \
                                   View1<const Real>, const AdamW&, View1<const double>);        \
  template void squared_norm_blocks<Real>(const Exec&, View1<double>, View1<const Real>);        \
  template void squared_norm_blocks<Real>(const Exec&, View1<double>, View1<const Real>,         \
                                          View1<const std::int64_t>, View1<const std::int64_t>); \
  template void count_non_finite<Real>(const Exec&, View1<std::int64_t>, View1<const Real>);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(double)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
