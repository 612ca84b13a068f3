// Rescales gradients of a part of the logits by the statistics of the whole row.
#include <trireme/kernels/shared_logits.hpp>

#include <trireme/kernels/packs.hpp>
#include <trireme/tensor/expect.hpp>

namespace trireme::kernels {
namespace {

/// Factors of a row, and the index of the target's logit in the part; -1 if another part holds it.
struct RowScale {
  double factor;
  double scale;  // factor of the target's term: scale times the slope of the soft cap
  std::int64_t target;
};

/// Fields of a LogitsPart that kernels capture.
struct Captured {
  View2<const double> own;
  View2<const double> merged;
  View1<const std::int32_t> targets;
  std::int64_t first_id;
  double scale;
  const double* loss_scale;
  double cap;

  explicit Captured(const LogitsPart& part)
      : own(part.own),
        merged(part.merged),
        targets(part.targets),
        first_id(part.first_id),
        scale(part.scale),
        loss_scale(part.loss_scale.data()),
        cap(part.cap) {}

  /// Factors of row r. `ids`: number of ids in the part.
  KOKKOS_FORCEINLINE_FUNCTION RowScale row(std::int64_t r, std::int64_t ids) const {
    const double scaled = loss_scale == nullptr ? scale : scale * loss_scale[0];
    const double shift = own(r, 0) - merged(r, 0);
    const double ratio = shift > -infinity<double> ? math::exp(shift) : 0.0;
    const std::int64_t place = targets(r) - first_id;
    const double share = cap == 0 ? 0 : merged(r, 2) / cap;
    const double slope = (1 - share) * (1 + share);
    return {scaled * own(r, 1) * ratio / merged(r, 1), scaled * slope,
            place >= 0 && place < ids ? place : -1};
  }
};

void expect_part(const LogitsPart& part, std::int64_t rows) {
  expect_shape(part.own, "own", {rows, 3});
  expect_shape(part.merged, "merged", {rows, 3});
  expect_shape(part.targets, "targets", {rows});
}

}  // namespace

template <class T>
void rescale_output_gradient(const Exec& exec, View2<T> dy, View2<const T> table,
                             const LogitsPart& part) {
  using Acc = Accumulate<T>;
  const std::int64_t rows = extent(dy, 0);
  const std::int64_t columns = extent(dy, 1);
  const std::int64_t ids = extent(table, 0);
  expect_shape(table, "table", {ids, columns});
  expect_part(part, rows);
  const Captured captured(part);
  for_rows(
      "kernels/rescale_output_gradient", exec, rows,
      KOKKOS_LAMBDA(const Team& team, std::int64_t r) {
        const RowScale row = captured.row(r, ids);
        const auto factor = static_cast<Acc>(row.factor);
        T* out = row_of(dy, r);
        const T* in = out;
        if (row.target < 0) {
          map_lanes(
              team, columns, out, [&](std::int64_t, Acc x) { return factor * x; }, in);
          return;
        }
        const auto scale = static_cast<Acc>(row.scale);
        const T* held = row_of(table, row.target);
        map_lanes(
            team, columns, out, [&](std::int64_t, Acc x, Acc w) { return factor * x - scale * w; },
            in, held);
      });
}

template <class T>
void rescale_softmax(const Exec& exec, View2<T> p, const LogitsPart& part) {
  using Acc = Accumulate<T>;
  const std::int64_t rows = extent(p, 0);
  const std::int64_t ids = extent(p, 1);
  expect_part(part, rows);
  const Captured captured(part);
  for_rows(
      "kernels/rescale_softmax", exec, rows, KOKKOS_LAMBDA(const Team& team, std::int64_t r) {
        const RowScale row = captured.row(r, ids);
        const auto factor = static_cast<Acc>(row.factor);
        T* out = row_of(p, r);
        const T* in = out;
        map_lanes(
            team, ids, out, [&](std::int64_t, Acc x) { return factor * x; }, in);
        if (row.target < 0) return;
        team.team_barrier();
        once(team, [&]() {
          // expm1 of the log-probability is softmax - 1, as in cross_entropy_gradient.
          const double shifted = captured.merged(r, 2) - captured.merged(r, 0);
          out[row.target] =
              static_cast<T>(row.scale * math::expm1(shifted - math::log(captured.merged(r, 1))));
        });
      });
}

#define TRIREME_INSTANTIATE(T)                                                    \
  template void rescale_output_gradient<T>(const Exec&, View2<T>, View2<const T>, \
                                           const LogitsPart&);                    \
  template void rescale_softmax<T>(const Exec&, View2<T>, const LogitsPart&);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(Bf16)
TRIREME_INSTANTIATE(Fp16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
