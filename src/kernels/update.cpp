// The optimizer's kernels: the plan of a step (clipping, skipped steps, loss scale), the balance of
// experts, rounding, and sums of squares.
#include <trireme/kernels/update.hpp>

#include <trireme/base/check.hpp>
#include <trireme/kernels/packs.hpp>
#include <trireme/tensor/expect.hpp>

#include <cmath>

namespace trireme::kernels {
namespace {

KOKKOS_FORCEINLINE_FUNCTION bool is_finite(double x) {
  const double zero = x - x;  // NaN for infinities and NaNs
  return zero == zero;
}

/// The largest power of two whose product with `size` is below 1/2; of tiny sizes, a large one.
KOKKOS_FORCEINLINE_FUNCTION double below_half(double size) {
  std::uint64_t bits = 0;
  __builtin_memcpy(&bits, &size, sizeof bits);
  const auto exponent = static_cast<std::int64_t>(bits >> 52 & 0x7FF) - 1022;  // size < 2^exponent
  const std::int64_t field = 1022 - exponent;  // of 2^(-exponent - 1)
  bits = static_cast<std::uint64_t>(field < 1 ? 1 : field > 2000 ? 2000 : field) << 52;
  double power = 0;
  __builtin_memcpy(&power, &bits, sizeof power);
  return power;
}

/// Counts `step` as skipped, and stores the index of the first sum that is not finite, or -1.
KOKKOS_FORCEINLINE_FUNCTION void skip(double* status, const double* sums, std::int64_t n,
                                      std::int64_t step) {
  status[status_skipped] += 1;
  status[status_skipped_in_row] += 1;
  status[status_skipped_step] = static_cast<double>(step);
  status[status_skipped_sum] = -1;
  for (std::int64_t k = n - 1; k >= 0; --k)
    if (!is_finite(sums[k])) status[status_skipped_sum] = static_cast<double>(k);
}

/// Sets the loss scale of the next step (LossScaling). `proceeds`: this step is not skipped.
KOKKOS_FORCEINLINE_FUNCTION void adapt_scale(double* status, const LossScaling& scaling,
                                             bool proceeds) {
  if (scaling.interval == 0) return;
  double& scale = status[status_loss_scale];
  double& steps = status[status_scale_steps];
  steps = proceeds ? steps + 1 : 0;
  if (!proceeds) scale = scale > 2 * LossScaling::least ? scale / 2 : LossScaling::least;
  if (steps < static_cast<double>(scaling.interval)) return;
  steps = 0;
  scale = 2 * scale < LossScaling::most ? 2 * scale : LossScaling::most;
}

}  // namespace

void plan_update(const Exec& exec, View1<double> control, View1<double> status,
                 View1<const double> sums, const UpdatePlan& plan,
                 View1<const double> gradient_scale) {
  expect_shape(control, "control", {control_size});
  expect_shape(status, "status", {status_size});
  check(plan.step >= 1, "update of step ", plan.step, ": steps count from 1");
  check(plan.clip_norm >= 0, "clipping norm ", plan.clip_norm,
        ", expected 0 (no clipping) or more");
  check(plan.most_skips >= 1, "at most ", plan.most_skips,
        " steps skipped in a row, expected 1 or more");
  const std::int64_t n = extent(sums, 0);
  const UpdatePlan p = plan;
  const double* own_scale = gradient_scale.data();
  for_rows(
      "kernels/plan_update", exec, 1, KOKKOS_LAMBDA(const Team& team, std::int64_t) {
        once(team, [&]() {
          const double scale = own_scale != nullptr ? *own_scale : status(status_loss_scale);
          const double norm = status(status_norm) / scale;
          const bool stopped = status(status_skipped_in_row) >= static_cast<double>(p.most_skips);
          const bool proceed = is_finite(norm) && !stopped;
          if (proceed)
            status(status_skipped_in_row) = 0;
          else
            skip(status.data(), sums.data(), n, p.step);
          const double ratio = p.clip_norm / (norm + 1e-6);
          const double update = static_cast<double>(p.step) - status(status_skipped);
          status(status_norm) = norm;
          control(control_proceed) = proceed ? 1.0 : 0.0;
          control(control_clip) = (p.clip_norm == 0 || ratio > 1 ? 1.0 : ratio) / scale;
          control(control_first_correction) = 1.0 - math::pow(p.beta1, update);
          control(control_second_correction) = 1.0 - math::pow(p.beta2, update);
          control(control_update) = update;
          control(control_scale) = below_half(norm * (p.clip_norm == 0 || ratio > 1 ? 1.0 : ratio));
          adapt_scale(status.data(), p.loss_scaling, proceed);
        });
      });
}

template <class Real>
void mark_non_finite(const Exec& exec, View1<Real> gradient, View1<const double> loss) {
  expect_shape(loss, "loss", {1});
  for_rows(
      "kernels/mark_non_finite", exec, 1, KOKKOS_LAMBDA(const Team& team, std::int64_t) {
        once(team, [&]() {
          if (!is_finite(loss(0))) gradient(0) = static_cast<Real>(loss(0) - loss(0));
        });
      });
}

namespace {

/// Mean of the counts of a part.
template <class Real>
KOKKOS_FORCEINLINE_FUNCTION double mean_count(const Team& team, const Real* counts,
                                              std::int64_t elements) {
  const double sum = sum_lanes<double>(
      team, elements, [&](std::int64_t i) { return static_cast<double>(counts[i]); });
  return sum / static_cast<double>(elements);
}

}  // namespace

template <class Real>
void balance_update(const Exec& exec, View1<Real> weight, View1<const Real> counts, double rate,
                    View1<const double> control, const UpdateRanges& parts) {
  expect_shape(control, "control", {control_size});
  const auto step = static_cast<Real>(rate);
  for_parts(
      "kernels/balance_update", exec, parts,
      KOKKOS_LAMBDA(const Team& team, const UpdateRange& part) {
        if (control(control_proceed) == 0) return;
        Real* w = weight.data() + part.weight;
        const Real* n = counts.data() + part.gradient;
        const double mean = mean_count(team, n, part.elements);
        for_lanes(team, part.elements, [&](std::int64_t i) {
          const auto count = static_cast<double>(n[i]);
          w[i] += count < mean ? step : count > mean ? -step : Real(0);
        });
      });
}

template <class Real>
void load_update(const Exec& exec, View1<Real> weight, View1<const Real> counts,
                 View1<const double> control, const UpdateRanges& parts) {
  expect_shape(control, "control", {control_size});
  for_parts(
      "kernels/load_update", exec, parts, KOKKOS_LAMBDA(const Team& team, const UpdateRange& part) {
        if (control(control_proceed) == 0) return;
        Real* w = weight.data() + part.weight;
        const Real* n = counts.data() + part.gradient;
        const double mean = mean_count(team, n, part.elements);
        for_lanes(team, part.elements, [&](std::int64_t i) {
          w[i] = mean > 0 ? static_cast<Real>(static_cast<double>(n[i]) / mean) : Real(1);
        });
      });
}

template <class T, class Real>
void round_weights(const Exec& exec, View1<T> weight, View1<const Real> master,
                   const UpdateRanges& parts) {
  for_parts(
      "kernels/round_weights", exec, parts,
      KOKKOS_LAMBDA(const Team& team, const UpdateRange& part) {
        const Real* from = master.data() + part.weight;
        T* to = weight.data() + part.rounded;
        map_lanes(
            team, part.elements, to, [](std::int64_t, Real v) { return v; }, from);
      });
}

template void round_weights<Bf16, float>(const Exec&, View1<Bf16>, View1<const float>,
                                         const UpdateRanges&);
template void round_weights<Fp16, float>(const Exec&, View1<Fp16>, View1<const float>,
                                         const UpdateRanges&);

#define TRIREME_INSTANTIATE(Real)                                                         \
  template void mark_non_finite<Real>(const Exec&, View1<Real>, View1<const double>);     \
  template void balance_update<Real>(const Exec&, View1<Real>, View1<const Real>, double, \
                                     View1<const double>, const UpdateRanges&);           \
  template void load_update<Real>(const Exec&, View1<Real>, View1<const Real>,            \
                                  View1<const double>, const UpdateRanges&);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(double)
#undef TRIREME_INSTANTIATE

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
