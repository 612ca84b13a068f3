// Cross entropy by three kernels: statistics of each part of the vocabulary in one pass over the
// logits, the merge of these statistics, and the gradient.
#include <trireme/kernels/cross_entropy.hpp>

#include <trireme/base/check.hpp>
#include <trireme/kernels/packs.hpp>
#include <trireme/tensor/expect.hpp>

namespace trireme::kernels {

namespace {

/// Elements of a row between two updates of the maximum; they fit into the first-level cache.
constexpr std::int64_t softmax_chunk = 4096;

/// The largest logit of a row or of a part of a row, and the sum of exp(logit - largest).
template <class Acc>
struct SoftmaxSum {
  Acc largest;
  double sum;
};

template <class T>
KOKKOS_FORCEINLINE_FUNCTION SoftmaxSum<Accumulate<T>> softmax_sum(const Team& team, const T* row,
                                                                  std::int64_t n) {
  using Acc = Accumulate<T>;
  Acc largest = -infinity<Acc>;
  double sum = 0;
  for (std::int64_t first = 0; first < n; first += softmax_chunk) {
    const T* part = row + first;
    const std::int64_t count = n - first < softmax_chunk ? n - first : softmax_chunk;
    const Acc part_largest = max_of<Acc>(team, count, part);
    if (part_largest > largest) {
      sum *= static_cast<double>(fast_exp(largest - part_largest));
      largest = part_largest;
    }
    // Masked logits are -infinity. If all logits so far are masked, they must add 0, not NaN.
    const Acc reference = largest == -infinity<Acc> ? Acc(0) : largest;
    sum += static_cast<double>(sum_of<Acc>(
        team, count, [&](std::int64_t, Acc logit) { return fast_exp(logit - reference); }, part));
  }
  return {largest, sum};
}

/// out[v] = scale slope (softmax - (v == target)) for v in [0, n), where slope is the derivative of
/// the soft cap, or 1 without a cap. `softmax`: statistics of the whole row. `target`: index of the
/// target's logit in this part; -1 if another part holds it.
template <class T>
KOKKOS_FORCEINLINE_FUNCTION void write_gradient(const Team& team, T* out, const Accumulate<T>* row,
                                                std::int64_t n, SoftmaxSum<Accumulate<T>> softmax,
                                                std::int64_t target, double target_logit,
                                                double scale, double cap) {
  using Acc = Accumulate<T>;
  const Acc largest = softmax.largest;
  const Acc factor = static_cast<Acc>(scale / softmax.sum);
  if (cap == 0) {
    map_lanes(
        team, n, out, [&](std::int64_t, Acc logit) { return factor * fast_exp(logit - largest); },
        row);
  } else {
    const Acc inverse = static_cast<Acc>(1 / cap);
    map_lanes(
        team, n, out,
        [&](std::int64_t, Acc logit) {
          const Acc share = logit * inverse;
          const Acc slope = (Acc(1) - share) * (Acc(1) + share);
          return factor * slope * fast_exp(logit - largest);
        },
        row);
  }
  if (target < 0) return;
  team.team_barrier();
  once(team, [&]() {
    // expm1 of the log-probability gives softmax - 1 accurately where softmax is near 1.
    const double shifted = target_logit - static_cast<double>(largest);
    const double share = cap == 0 ? 0 : target_logit / cap;
    const double slope = (1 - share) * (1 + share);
    out[target] = static_cast<T>(scale * slope * math::expm1(shifted - math::log(softmax.sum)));
  });
}

/// Value of the sum of exponentials that marks a row without a target; true sums are not negative.
constexpr double uncounted_sum = -1;
/// Value of the sum that marks a row whose target requests the most likely id.
constexpr double likeliest_sum = -2;

/// Index of the first largest logit in the part [0, n) of a row, and this logit; {-1, infinity} if
/// a logit is NaN or infinite, {-1, -infinity} in an empty part.
template <class T>
struct Likeliest {
  std::int64_t place;
  T logit;
};

template <class T>
KOKKOS_FORCEINLINE_FUNCTION Likeliest<T> likeliest(const Team& team, const T* row, std::int64_t n) {
  const T largest = max_of<T>(team, n, row);
  // The maximum of -index gives the first index; 1 marks a NaN or an infinity.
  const auto found = max_lanes<double>(team, n, [&](std::int64_t i) {
    const T logit = row[i];
    if (!(logit < infinity<T> && logit > -infinity<T>)) return 1.0;
    return logit == largest ? -static_cast<double>(i) : -infinity<double>;
  });
  if (found > 0) return {-1, infinity<T>};
  return {n > 0 ? static_cast<std::int64_t>(-found) : -1, largest};
}

/// Index of the logit of `token` in the part [first_id, first_id + n); -1 in other parts.
KOKKOS_FORCEINLINE_FUNCTION std::int64_t place_of(std::int32_t token, std::int64_t first_id,
                                                  std::int64_t n) {
  const std::int64_t place = token - first_id;
  return place >= 0 && place < n ? place : -1;
}

}  // namespace

template <class T>
void cross_entropy_statistics(const Exec& exec, View2<double> statistics, View2<const T> logits,
                              View1<const std::int32_t> targets, std::int64_t first_id) {
  const std::int64_t rows = extent(logits, 0);
  const std::int64_t columns = extent(logits, 1);
  expect_shape(statistics, "statistics", {rows, 3});
  expect_shape(targets, "targets", {rows});
  for_rows(
      "kernels/cross_entropy_statistics", exec, rows,
      KOKKOS_LAMBDA(const Team& team, std::int64_t r) {
        const T* row = row_of(logits, r);
        if (targets(r) < 0) {
          const bool wanted = targets(r) < -1;
          const std::int64_t ids = wanted ? -1 - targets(r) - first_id : 0;
          const auto found = likeliest<T>(team, row, ids < columns ? (ids > 0 ? ids : 0) : columns);
          once(team, [&]() {
            statistics(r, 0) = wanted ? static_cast<double>(found.logit) : 0;
            statistics(r, 1) = wanted ? likeliest_sum : uncounted_sum;
            statistics(r, 2) =
                !wanted ? 0 : static_cast<double>(found.place < 0 ? -1 : first_id + found.place);
          });
          return;
        }
        const auto softmax = softmax_sum<T>(team, row, columns);
        once(team, [&]() {
          const std::int64_t target = place_of(targets(r), first_id, columns);
          statistics(r, 0) = static_cast<double>(softmax.largest);
          statistics(r, 1) = softmax.sum;
          statistics(r, 2) = target < 0 ? -infinity<double> : static_cast<double>(row[target]);
        });
      });
}

void cross_entropy_merge(const Exec& exec, View1<double> loss, View2<double> merged,
                         View3<const double> parts) {
  const std::int64_t count = extent(parts, 0);
  const std::int64_t rows = extent(parts, 1);
  expect_shape(loss, "loss", {rows});
  expect_shape(merged, "merged", {rows, 3});
  expect_shape(parts, "parts", {count, rows, 3});
  Kokkos::parallel_for(
      "kernels/cross_entropy_merge",
      Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>(exec, 0, rows),
      KOKKOS_LAMBDA(const std::int64_t r) {
        if (count > 0 && parts(0, r, 1) < 0) {
          std::int64_t best = 0;  // the first part that has the largest logit
          for (std::int64_t p = 1; p < count; ++p)
            if (parts(p, r, 0) > parts(best, r, 0)) best = p;
          for (int i = 0; i < 3; ++i) merged(r, i) = parts(best, r, i);
          loss(r) = 0;
          return;
        }
        double largest = -infinity<double>;
        double target = -infinity<double>;
        for (std::int64_t p = 0; p < count; ++p) {
          largest = parts(p, r, 0) > largest ? parts(p, r, 0) : largest;
          target = parts(p, r, 2) > target ? parts(p, r, 2) : target;
        }
        // A part without logits, or with masked logits only, must add 0, not NaN.
        const double reference = largest == -infinity<double> ? 0.0 : largest;
        double sum = 0;
        for (std::int64_t p = 0; p < count; ++p)
          sum += parts(p, r, 1) * fast_exp(parts(p, r, 0) - reference);
        merged(r, 0) = largest;
        merged(r, 1) = sum;
        merged(r, 2) = target;
        loss(r) = math::log(sum) - (target - largest);
      });
}

template <class T>
void soft_cap(const Exec& exec, View2<T> logits, double cap) {
  check(cap > 0, "a soft cap of ", cap, ", expected a number above 0");
  const std::int64_t columns = extent(logits, 1);
  const T limit = static_cast<T>(cap), inverse = static_cast<T>(1 / cap);
  for_rows(
      "kernels/soft_cap", exec, extent(logits, 0), KOKKOS_LAMBDA(const Team& team, std::int64_t r) {
        T* out = row_of(logits, r);
        const T* in = out;
        map_lanes(
            team, columns, out,
            [&](std::int64_t, T logit) { return limit * fast_tanh(logit * inverse); }, in);
      });
}

template <class T>
void scale_logits(const Exec& exec, View2<T> logits, double factor) {
  const std::int64_t columns = extent(logits, 1);
  const T by = static_cast<T>(factor);
  for_rows(
      "kernels/scale_logits", exec, extent(logits, 0),
      KOKKOS_LAMBDA(const Team& team, std::int64_t r) {
        T* row = row_of(logits, r);
        map_lanes(
            team, columns, row, [&](std::int64_t, T logit) { return by * logit; }, row);
      });
}

template <class T>
void cross_entropy_gradient(const Exec& exec, View2<T> gradient, View2<const Accumulate<T>> logits,
                            View2<const double> merged, View1<const std::int32_t> targets,
                            std::int64_t first_id, double scale, View1<const double> loss_scale,
                            double cap) {
  using Acc = Accumulate<T>;
  const std::int64_t rows = extent(logits, 0);
  const std::int64_t columns = extent(logits, 1);
  expect_shape(gradient, "gradient", {rows, columns});
  expect_shape(merged, "merged", {rows, 3});
  expect_shape(targets, "targets", {rows});
  const double* factor = loss_scale.data();
  for_rows(
      "kernels/cross_entropy_gradient", exec, rows,
      KOKKOS_LAMBDA(const Team& team, std::int64_t r) {
        if (targets(r) < 0) {
          T* out = row_of(gradient, r);
          for_lanes(team, columns, [&](std::int64_t v) { out[v] = static_cast<T>(Acc(0)); });
          return;
        }
        const SoftmaxSum<Acc> softmax{static_cast<Acc>(merged(r, 0)), merged(r, 1)};
        write_gradient<T>(team, row_of(gradient, r), row_of(logits, r), columns, softmax,
                          place_of(targets(r), first_id, columns), merged(r, 2),
                          factor == nullptr ? scale : scale * factor[0], cap);
      });
}

void row_scores(const Exec& exec, View2<double> scores, View1<const double> loss,
                View2<const double> merged) {
  const std::int64_t rows = extent(scores, 0);
  expect_shape(scores, "scores", {rows, 2});
  expect_shape(loss, "loss", {rows});
  expect_shape(merged, "merged", {rows, 3});
  Kokkos::parallel_for(
      "kernels/row_scores",
      Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>(exec, 0, rows),
      KOKKOS_LAMBDA(const std::int64_t r) {
        scores(r, 0) = loss(r);
        scores(r, 1) = merged(r, 1) == likeliest_sum ? merged(r, 2) : merged(r, 0) - merged(r, 2);
      });
}

void sum_ordered(const Exec& exec, View1<double> result, View1<const double> values) {
  const std::int64_t n = extent(values, 0);
  expect_shape(result, "result", {1});
  for_rows(
      "kernels/sum_ordered", exec, 1, KOKKOS_LAMBDA(const Team& team, std::int64_t) {
        const double* value = values.data();
        const double sum = sum_lanes<double>(team, n, [&](std::int64_t i) { return value[i]; });
        once(team, [&]() { result(0) += sum; });
      });
}

template void cross_entropy_statistics<float>(const Exec&, View2<double>, View2<const float>,
                                              View1<const std::int32_t>, std::int64_t);
template void cross_entropy_statistics<double>(const Exec&, View2<double>, View2<const double>,
                                               View1<const std::int32_t>, std::int64_t);
template void soft_cap<float>(const Exec&, View2<float>, double);
template void soft_cap<double>(const Exec&, View2<double>, double);
template void scale_logits<float>(const Exec&, View2<float>, double);
template void scale_logits<double>(const Exec&, View2<double>, double);

#define TRIREME_INSTANTIATE(T)                                                               \
  template void cross_entropy_gradient<T>(const Exec&, View2<T>, View2<const Accumulate<T>>, \
                                          View2<const double>, View1<const std::int32_t>,    \
                                          std::int64_t, double, View1<const double>, double);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(Bf16)
TRIREME_INSTANTIATE(Fp16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
