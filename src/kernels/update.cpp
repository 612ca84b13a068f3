// The optimizer's kernels: the plan of a step (clipping, skipped steps, loss scale), the update
// rules AdamW, SGD, LAMB and LARS, and sums of squares. Equations and sources are in update.hpp.
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

template <class Real>
void adamw_update(const Exec& exec, View1<Real> weight, View1<Real> m, View1<Real> v,
                  View1<const Real> gradient, const AdamW& adamw, View1<const double> control) {
  const std::int64_t n = extent(weight, 0);
  expect_shape(m, "m", {n});
  expect_shape(v, "v", {n});
  expect_shape(gradient, "gradient", {n});
  adamw_update<Real>(exec, weight, m, v, gradient, adamw, control, whole_update(n));
}

template <class Real>
void adamw_update(const Exec& exec, View1<Real> weight, View1<Real> m, View1<Real> v,
                  View1<const Real> gradient, const AdamW& adamw, View1<const double> control,
                  const UpdateRanges& parts) {
  expect_shape(v, "v", {extent(m, 0)});
  expect_shape(control, "control", {control_size});
  const double learning_rate = adamw.learning_rate;
  const auto decayed = static_cast<Real>(1.0 - adamw.learning_rate * adamw.weight_decay);
  const auto toward_gradient = static_cast<Real>(1.0 - adamw.beta1);
  const auto beta2 = static_cast<Real>(adamw.beta2);
  const auto toward_square = static_cast<Real>(1.0 - adamw.beta2);
  const auto epsilon = static_cast<Real>(adamw.epsilon);
  for_parts(
      "kernels/adamw_update", exec, parts,
      KOKKOS_LAMBDA(const Team& team, const UpdateRange& part) {
        if (control(control_proceed) == 0) return;
        const auto clip = static_cast<Real>(control(control_clip));
        const auto step_size = static_cast<Real>(learning_rate / control(control_first_correction));
        const auto root_correction =
            static_cast<Real>(1.0 / math::sqrt(control(control_second_correction)));
        const Real keep = part.decays != 0 ? decayed : Real(1);
        Real* w_part = weight.data() + part.weight;
        Real* m_part = m.data() + part.state;
        Real* v_part = v.data() + part.state;
        const Real* g_part = gradient.data() + part.gradient;
        const auto update = [&](Real& w, Real& m_i, Real& v_i, const Real& gradient_i) {
          const Real g = clip * gradient_i;
          m_i = m_i + toward_gradient * (g - m_i);
          v_i = beta2 * v_i + toward_square * g * g;
          w = keep * w - step_size * (m_i / (math::sqrt(v_i) * root_correction + epsilon));
        };
        update_lanes(team, part.elements, update, w_part, m_part, v_part, g_part);
      });
}

namespace detail {

/// Forms of SGD. A form is a template argument, so that the loop over elements does not test it.
enum class SgdForm : std::uint8_t { plain, momentum, nesterov };

template <SgdForm form, class Real>
void sgd_of_form(const Exec& exec, View1<Real> weight, View1<Real> b, View1<const Real> gradient,
                 const Sgd& sgd, View1<const double> control, const UpdateRanges& parts) {
  const auto learning_rate = static_cast<Real>(sgd.learning_rate);
  const auto momentum = static_cast<Real>(sgd.momentum);
  const auto weight_decay = static_cast<Real>(sgd.weight_decay);
  for_parts(
      "kernels/sgd_update", exec, parts, KOKKOS_LAMBDA(const Team& team, const UpdateRange& part) {
        if (control(control_proceed) == 0) return;
        const auto clip = static_cast<Real>(control(control_clip));
        const Real decay = part.decays != 0 ? weight_decay : Real(0);
        Real* w_part = weight.data() + part.weight;
        Real* b_part = b.data() + (form == SgdForm::plain ? 0 : part.state);
        const Real* g_part = gradient.data() + part.gradient;
        const Real rate = learning_rate;
        const Real keep = momentum;
        if constexpr (form == SgdForm::plain) {
          const auto update = [&](Real& w, const Real& gradient_i) {
            w -= rate * (clip * gradient_i + decay * w);
          };
          update_lanes(team, part.elements, update, w_part, g_part);
        } else {
          const auto update = [&](Real& w, Real& b_i, const Real& gradient_i) {
            const Real g = clip * gradient_i + decay * w;
            b_i = keep * b_i + g;
            w -= rate * (form == SgdForm::nesterov ? g + keep * b_i : b_i);
          };
          update_lanes(team, part.elements, update, w_part, b_part, g_part);
        }
      });
}

}  // namespace detail

template <class Real>
void sgd_update(const Exec& exec, View1<Real> weight, View1<Real> b, View1<const Real> gradient,
                const Sgd& sgd, View1<const double> control) {
  const std::int64_t n = extent(weight, 0);
  if (sgd.momentum != 0) expect_shape(b, "b", {n});
  expect_shape(gradient, "gradient", {n});
  sgd_update<Real>(exec, weight, b, gradient, sgd, control, whole_update(n));
}

template <class Real>
void sgd_update(const Exec& exec, View1<Real> weight, View1<Real> b, View1<const Real> gradient,
                const Sgd& sgd, View1<const double> control, const UpdateRanges& parts) {
  expect_shape(control, "control", {control_size});
  if (sgd.momentum == 0)
    detail::sgd_of_form<detail::SgdForm::plain>(exec, weight, b, gradient, sgd, control, parts);
  else if (sgd.nesterov)
    detail::sgd_of_form<detail::SgdForm::nesterov>(exec, weight, b, gradient, sgd, control, parts);
  else
    detail::sgd_of_form<detail::SgdForm::momentum>(exec, weight, b, gradient, sgd, control, parts);
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

template <class Real>
void lamb_direction(const Exec& exec, View1<Real> gradient, View1<Real> m, View1<Real> v,
                    View1<const Real> weight, const AdamW& lamb, View1<const double> control) {
  const std::int64_t n = extent(gradient, 0);
  expect_shape(m, "m", {n});
  expect_shape(v, "v", {n});
  expect_shape(weight, "weight", {n});
  lamb_direction<Real>(exec, gradient, m, v, weight, lamb, control, whole_update(n));
}

template <class Real>
void lamb_direction(const Exec& exec, View1<Real> gradient, View1<Real> m, View1<Real> v,
                    View1<const Real> weight, const AdamW& lamb, View1<const double> control,
                    const UpdateRanges& parts) {
  expect_shape(v, "v", {extent(m, 0)});
  expect_shape(control, "control", {control_size});
  const auto toward_gradient = static_cast<Real>(1.0 - lamb.beta1);
  const auto beta2 = static_cast<Real>(lamb.beta2);
  const auto toward_square = static_cast<Real>(1.0 - lamb.beta2);
  const auto epsilon = static_cast<Real>(lamb.epsilon);
  const auto weight_decay = static_cast<Real>(lamb.weight_decay);
  for_parts(
      "kernels/lamb_direction", exec, parts,
      KOKKOS_LAMBDA(const Team& team, const UpdateRange& part) {
        if (control(control_proceed) == 0) return;
        const auto clip = static_cast<Real>(control(control_clip));
        const auto correction = static_cast<Real>(1.0 / control(control_first_correction));
        const auto root_correction =
            static_cast<Real>(1.0 / math::sqrt(control(control_second_correction)));
        const Real decay = part.decays != 0 ? weight_decay : Real(0);
        const Real* w_part = weight.data() + part.weight;
        Real* m_part = m.data() + part.state;
        Real* v_part = v.data() + part.state;
        Real* g_part = gradient.data() + part.gradient;
        const auto update = [&](Real& gradient_i, Real& m_i, Real& v_i, const Real& w) {
          const Real g = clip * gradient_i;
          m_i = m_i + toward_gradient * (g - m_i);
          v_i = beta2 * v_i + toward_square * g * g;
          gradient_i = correction * m_i / (math::sqrt(v_i) * root_correction + epsilon) + decay * w;
        };
        update_lanes(team, part.elements, update, g_part, m_part, v_part, w_part);
      });
}

namespace detail {

/// Norm of array a from the sums of squares of its parts, added in order.
KOKKOS_FORCEINLINE_FUNCTION double norm_of_parts(const View1<const double>& sums, std::int64_t a,
                                                 std::int64_t parts) {
  double squares = 0;
  for (std::int64_t p = a * parts; p < (a + 1) * parts; ++p) squares += sums(p);
  return math::sqrt(squares);
}

}  // namespace detail

void trust_ratios(const Exec& exec, View1<double> ratios, View1<const double> weight_sums,
                  View1<const double> direction_sums, std::int64_t parts) {
  const std::int64_t arrays = extent(ratios, 0);
  expect_shape(weight_sums, "weight_sums", {arrays * parts});
  expect_shape(direction_sums, "direction_sums", {arrays * parts});
  for_rows(
      "kernels/trust_ratios", exec, arrays, KOKKOS_LAMBDA(const Team& team, std::int64_t a) {
        once(team, [&]() {
          const double weight = detail::norm_of_parts(weight_sums, a, parts);
          const double direction = detail::norm_of_parts(direction_sums, a, parts);
          ratios(a) = weight > 0 && direction > 0 ? weight / direction : 1.0;
        });
      });
}

template <class Real>
void lamb_update(const Exec& exec, View1<Real> weight, View1<const Real> direction,
                 double learning_rate, View1<const double> ratio, View1<const double> control) {
  const std::int64_t n = extent(weight, 0);
  expect_shape(direction, "direction", {n});
  expect_shape(ratio, "ratio", {1});
  lamb_update<Real>(exec, weight, direction, learning_rate, ratio, control, whole_update(n));
}

template <class Real>
void lamb_update(const Exec& exec, View1<Real> weight, View1<const Real> direction,
                 double learning_rate, View1<const double> ratios, View1<const double> control,
                 const UpdateRanges& parts) {
  expect_shape(control, "control", {control_size});
  for_parts(
      "kernels/lamb_update", exec, parts, KOKKOS_LAMBDA(const Team& team, const UpdateRange& part) {
        if (control(control_proceed) == 0) return;
        const auto size = static_cast<Real>(learning_rate * ratios(part.array));
        Real* w_part = weight.data() + part.weight;
        const Real* d_part = direction.data() + part.gradient;
        const auto update = [&](Real& w, const Real& d) { w -= size * d; };
        update_lanes(team, part.elements, update, w_part, d_part);
      });
}

void lars_ratios(const Exec& exec, View1<double> ratios, View1<const double> weight_sums,
                 View1<const double> gradient_sums, std::int64_t parts, const Lars& lars,
                 View1<const double> control) {
  const std::int64_t arrays = extent(ratios, 0);
  expect_shape(weight_sums, "weight_sums", {arrays * parts});
  expect_shape(gradient_sums, "gradient_sums", {arrays * parts});
  expect_shape(control, "control", {control_size});
  for_rows(
      "kernels/lars_ratios", exec, arrays, KOKKOS_LAMBDA(const Team& team, std::int64_t a) {
        once(team, [&]() {
          const double weight = detail::norm_of_parts(weight_sums, a, parts);
          const double gradient = detail::norm_of_parts(gradient_sums, a, parts);
          ratios(a) = weight > 0 && gradient > 0
                          ? lars.trust_coefficient * weight /
                                (control(control_clip) * gradient + lars.weight_decay * weight)
                          : 1.0;
        });
      });
}

template <class Real>
void lars_update(const Exec& exec, View1<Real> weight, View1<Real> b, View1<const Real> gradient,
                 const Lars& lars, View1<const double> ratio, View1<const double> control) {
  const std::int64_t n = extent(weight, 0);
  if (lars.momentum != 0) expect_shape(b, "b", {n});
  expect_shape(gradient, "gradient", {n});
  expect_shape(ratio, "ratio", {1});
  lars_update<Real>(exec, weight, b, gradient, lars, ratio, control, whole_update(n));
}

template <class Real>
void lars_update(const Exec& exec, View1<Real> weight, View1<Real> b, View1<const Real> gradient,
                 const Lars& lars, View1<const double> ratios, View1<const double> control,
                 const UpdateRanges& parts) {
  expect_shape(control, "control", {control_size});
  const bool has_momentum = lars.momentum != 0;
  for_parts(
      "kernels/lars_update", exec, parts, KOKKOS_LAMBDA(const Team& team, const UpdateRange& part) {
        if (control(control_proceed) == 0) return;
        const auto clip = static_cast<Real>(control(control_clip));
        const bool decays = part.decays != 0;
        const auto decay = static_cast<Real>(decays ? lars.weight_decay : 0.0);
        const auto rate =
            static_cast<Real>(lars.learning_rate * (decays ? ratios(part.array) : 1.0));
        const auto momentum = static_cast<Real>(lars.momentum);
        Real* w_part = weight.data() + part.weight;
        const Real* g_part = gradient.data() + part.gradient;
        if (has_momentum) {
          const auto update = [&](Real& w, Real& b_i, const Real& gradient_i) {
            b_i = momentum * b_i + rate * (clip * gradient_i + decay * w);
            w -= b_i;
          };
          update_lanes(team, part.elements, update, w_part, b.data() + part.state, g_part);
        } else {
          const auto update = [&](Real& w, const Real& gradient_i) {
            w -= rate * (clip * gradient_i + decay * w);
          };
          update_lanes(team, part.elements, update, w_part, g_part);
        }
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

#define TRIREME_INSTANTIATE(Real)                                                                 \
  template void mark_non_finite<Real>(const Exec&, View1<Real>, View1<const double>);             \
  template void adamw_update<Real>(const Exec&, View1<Real>, View1<Real>, View1<Real>,            \
                                   View1<const Real>, const AdamW&, View1<const double>);         \
  template void adamw_update<Real>(const Exec&, View1<Real>, View1<Real>, View1<Real>,            \
                                   View1<const Real>, const AdamW&, View1<const double>,          \
                                   const UpdateRanges&);                                          \
  template void sgd_update<Real>(const Exec&, View1<Real>, View1<Real>, View1<const Real>,        \
                                 const Sgd&, View1<const double>);                                \
  template void sgd_update<Real>(const Exec&, View1<Real>, View1<Real>, View1<const Real>,        \
                                 const Sgd&, View1<const double>, const UpdateRanges&);           \
  template void balance_update<Real>(const Exec&, View1<Real>, View1<const Real>, double,         \
                                     View1<const double>, const UpdateRanges&);                   \
  template void load_update<Real>(const Exec&, View1<Real>, View1<const Real>,                    \
                                  View1<const double>, const UpdateRanges&);                      \
  template void lamb_direction<Real>(const Exec&, View1<Real>, View1<Real>, View1<Real>,          \
                                     View1<const Real>, const AdamW&, View1<const double>);       \
  template void lamb_direction<Real>(const Exec&, View1<Real>, View1<Real>, View1<Real>,          \
                                     View1<const Real>, const AdamW&, View1<const double>,        \
                                     const UpdateRanges&);                                        \
  template void lamb_update<Real>(const Exec&, View1<Real>, View1<const Real>, double,            \
                                  View1<const double>, View1<const double>);                      \
  template void lamb_update<Real>(const Exec&, View1<Real>, View1<const Real>, double,            \
                                  View1<const double>, View1<const double>, const UpdateRanges&); \
  template void lars_update<Real>(const Exec&, View1<Real>, View1<Real>, View1<const Real>,       \
                                  const Lars&, View1<const double>, View1<const double>);         \
  template void lars_update<Real>(const Exec&, View1<Real>, View1<Real>, View1<const Real>,       \
                                  const Lars&, View1<const double>, View1<const double>,          \
                                  const UpdateRanges&);
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
