// Layer and root mean square normalisation, forward and backward. Rows are normalised one at a
// time; the gradients of gain and bias are column sums in a fixed order.
#include <trireme/kernels/norm.hpp>

#include <trireme/kernels/column_sums.hpp>
#include <trireme/kernels/lanes.hpp>
#include <trireme/kernels/packs.hpp>
#include <trireme/kernels/row_norms.hpp>
#include <trireme/tensor/expect.hpp>

#include <algorithm>

namespace trireme::kernels {

template <class T>
void layer_norm_forward(const Exec& exec, View2<T> y, View1<Accumulate<T>> mean,
                        View1<Accumulate<T>> inverse_std, View2<const T> x, View1<const T> gain,
                        View1<const T> bias, double epsilon) {
  for_rows("kernels/layer_norm_forward", exec, extent(x, 0),
           detail::LayerNormRow<T>(y, mean, inverse_std, x, gain, bias, epsilon));
}

template <class T>
void residual_layer_norm_forward(const Exec& exec, View2<T> y, View1<Accumulate<T>> mean,
                                 View1<Accumulate<T>> inverse_std, View2<T> sum, View2<const T> x,
                                 View2<const T> z, const Dropout& dropout, View1<const T> gain,
                                 View1<const T> bias, double epsilon) {
  using Norm = detail::LayerNormRow<T>;
  using Residual = detail::ResidualRow<T>;
  for_rows("kernels/residual_layer_norm_forward", exec, extent(x, 0),
           detail::ResidualNormRow<Residual, Norm>{
               Residual(sum, x, z, dropout), Norm(y, mean, inverse_std, sum, gain, bias, epsilon)});
}

template <class T>
void layer_norm_backward_input(const Exec& exec, View2<T> dx, View2<const T> dy, View2<const T> x,
                               View1<const Accumulate<T>> mean,
                               View1<const Accumulate<T>> inverse_std, View1<const T> gain,
                               bool accumulate) {
  using Acc = Accumulate<T>;
  const std::int64_t rows = extent(x, 0);
  const std::int64_t hidden = extent(x, 1);
  expect_shape(dx, "dx", {rows, hidden});
  expect_shape(dy, "dy", {rows, hidden});
  expect_shape(mean, "mean", {rows});
  expect_shape(inverse_std, "inverse_std", {rows});
  expect_shape(gain, "gain", {hidden});
  const T* weight = gain.data();
  const Acc one_over_hidden = Acc(1) / static_cast<Acc>(hidden);
  for_rows(
      "kernels/layer_norm_backward_input", exec, rows,
      KOKKOS_LAMBDA(const Team& team, std::int64_t t) {
        const T* x_row = row_of(x, t);
        const T* dy_row = row_of(dy, t);
        T* dx_row = row_of(dx, t);
        const Acc mu = mean(t);
        const Acc inverse = inverse_std(t);
        const Acc mean_g =
            sum_of<Acc>(
                team, hidden, [](std::int64_t, Acc w, Acc d) { return w * d; }, weight, dy_row) *
            one_over_hidden;
        const Acc mean_gx =
            sum_of<Acc>(
                team, hidden,
                [&](std::int64_t, Acc w, Acc d, Acc v) { return w * d * ((v - mu) * inverse); },
                weight, dy_row, x_row) *
            one_over_hidden;
        const auto value = [&](Acc w, Acc d, Acc v) {
          const Acc normalised = (v - mu) * inverse;
          return inverse * (w * d - mean_g - normalised * mean_gx);
        };
        if (accumulate) {
          map_lanes(
              team, hidden, dx_row,
              [&](std::int64_t, Acc before, Acc w, Acc d, Acc v) {
                return before + value(w, d, v);
              },
              dx_row, weight, dy_row, x_row);
        } else {
          map_lanes(
              team, hidden, dx_row,
              [&](std::int64_t, Acc w, Acc d, Acc v) { return value(w, d, v); }, weight, dy_row,
              x_row);
        }
      });
}

namespace {

/// Host: adds the gradients of a norm's gain to dgain and, if `centred` (layer normalisation), the
/// gradients of its bias to dbias. Each thread has a block of columns.
template <class T, bool centred>
void backward_weight_by_blocks(const char* label, const Exec& exec, View1<Accumulate<T>> dgain,
                               View1<Accumulate<T>> dbias, View2<const T> dy, View2<const T> x,
                               View1<const Accumulate<T>> mean,
                               View1<const Accumulate<T>> inverse_std) {
  using Acc = Accumulate<T>;
  // widest_block: largest number of columns per thread. rows_per_part: rows that are summed before
  // they are added to the total, so that rounding errors grow more slowly.
  constexpr std::int64_t widest_block = centred ? 1024 : 2048;
  constexpr std::int64_t rows_per_part = 64;
  const std::int64_t rows = extent(x, 0);
  const std::int64_t hidden = extent(x, 1);
  const std::int64_t share = (hidden + exec.concurrency() - 1) / exec.concurrency();
  const std::int64_t width = std::min((share + 63) / 64 * 64, widest_block);
  const std::int64_t blocks = width > 0 ? (hidden + width - 1) / width : 0;
  for_rows(
      label, exec, blocks, KOKKOS_LAMBDA(const Team& team, std::int64_t block) {
        Acc gain_part[widest_block];
        Acc bias_part[centred ? widest_block : 1];
        const std::int64_t first = block * width;
        const std::int64_t columns = hidden - first < width ? hidden - first : width;
        Acc* gain_total = dgain.data() + first;
        Acc* bias_total = centred ? dbias.data() + first : nullptr;
        for (std::int64_t begin = 0; begin < rows; begin += rows_per_part) {
          const std::int64_t end = begin + rows_per_part < rows ? begin + rows_per_part : rows;
          for_lanes(team, columns, [&](std::int64_t d) {
            gain_part[d] = 0;
            if constexpr (centred) bias_part[d] = 0;
          });
          for (std::int64_t t = begin; t < end; ++t) {
            const T* x_row = row_of(x, t) + first;
            const T* dy_row = row_of(dy, t) + first;
            const Acc inverse = inverse_std(t);
            [[maybe_unused]] const Acc mu = centred ? mean(t) : Acc(0);
            if constexpr (centred) {
              for_lanes(team, columns, [&](std::int64_t d) {
                const Acc g = static_cast<Acc>(dy_row[d]);
                gain_part[d] += g * ((static_cast<Acc>(x_row[d]) - mu) * inverse);
                bias_part[d] += g;
              });
            } else {
              for_lanes(team, columns, [&](std::int64_t d) {
                gain_part[d] +=
                    static_cast<Acc>(dy_row[d]) * (static_cast<Acc>(x_row[d]) * inverse);
              });
            }
          }
          for_lanes(team, columns, [&](std::int64_t d) {
            gain_total[d] += gain_part[d];
            if constexpr (centred) bias_total[d] += bias_part[d];
          });
        }
      });
}

}  // namespace

template <class T>
void layer_norm_backward_weight(const Handle& handle, View1<Accumulate<T>> dgain,
                                View1<Accumulate<T>> dbias, View2<const T> dy, View2<const T> x,
                                View1<const Accumulate<T>> mean,
                                View1<const Accumulate<T>> inverse_std) {
  const std::int64_t rows = extent(x, 0);
  const std::int64_t hidden = extent(x, 1);
  expect_shape(dgain, "dgain", {hidden});
  expect_shape(dbias, "dbias", {hidden});
  expect_shape(dy, "dy", {rows, hidden});
  expect_shape(mean, "mean", {rows});
  expect_shape(inverse_std, "inverse_std", {rows});
  if constexpr (exec_on_host)
    backward_weight_by_blocks<T, true>("kernels/layer_norm_backward_weight", handle, dgain, dbias,
                                       dy, x, mean, inverse_std);
  else
    add_norm_sums<T>("kernels/layer_norm_backward_weight", handle, dgain, dbias, dy, x, mean,
                     inverse_std);
}

template <class T>
void rms_norm_forward(const Exec& exec, View2<T> y, View1<Accumulate<T>> inverse_rms,
                      View2<const T> x, View1<const T> gain, double offset, double epsilon) {
  for_rows("kernels/rms_norm_forward", exec, extent(x, 0),
           detail::RmsNormRow<T>(y, inverse_rms, x, gain, offset, epsilon));
}

template <class T>
void residual_rms_norm_forward(const Exec& exec, View2<T> y, View1<Accumulate<T>> inverse_rms,
                               View2<T> sum, View2<const T> x, View2<const T> z,
                               const Dropout& dropout, View1<const T> gain, double offset,
                               double epsilon) {
  using Norm = detail::RmsNormRow<T>;
  using Residual = detail::ResidualRow<T>;
  for_rows("kernels/residual_rms_norm_forward", exec, extent(x, 0),
           detail::ResidualNormRow<Residual, Norm>{
               Residual(sum, x, z, dropout), Norm(y, inverse_rms, sum, gain, offset, epsilon)});
}

template <class T>
void rms_norm_backward_input(const Exec& exec, View2<T> dx, View2<const T> dy, View2<const T> x,
                             View1<const Accumulate<T>> inverse_rms, View1<const T> gain,
                             double offset, bool accumulate) {
  using Acc = Accumulate<T>;
  const std::int64_t rows = extent(x, 0);
  const std::int64_t hidden = extent(x, 1);
  expect_shape(dx, "dx", {rows, hidden});
  expect_shape(dy, "dy", {rows, hidden});
  expect_shape(inverse_rms, "inverse_rms", {rows});
  expect_shape(gain, "gain", {hidden});
  const T* weight = gain.data();
  const Acc shift = static_cast<Acc>(offset);
  const Acc one_over_hidden = Acc(1) / static_cast<Acc>(hidden);
  for_rows(
      "kernels/rms_norm_backward_input", exec, rows,
      KOKKOS_LAMBDA(const Team& team, std::int64_t t) {
        const T* x_row = row_of(x, t);
        const T* dy_row = row_of(dy, t);
        T* dx_row = row_of(dx, t);
        const Acc inverse = inverse_rms(t);
        const Acc mean_gx =
            sum_of<Acc>(
                team, hidden,
                [&](std::int64_t, Acc w, Acc d, Acc v) { return (shift + w) * d * (v * inverse); },
                weight, dy_row, x_row) *
            one_over_hidden;
        const auto value = [&](Acc w, Acc d, Acc v) {
          const Acc normalised = v * inverse;
          return inverse * ((shift + w) * d - normalised * mean_gx);
        };
        if (accumulate) {
          map_lanes(
              team, hidden, dx_row,
              [&](std::int64_t, Acc before, Acc w, Acc d, Acc v) {
                return before + value(w, d, v);
              },
              dx_row, weight, dy_row, x_row);
        } else {
          map_lanes(
              team, hidden, dx_row,
              [&](std::int64_t, Acc w, Acc d, Acc v) { return value(w, d, v); }, weight, dy_row,
              x_row);
        }
      });
}

template <class T>
void rms_norm_backward_weight(const Handle& handle, View1<Accumulate<T>> dgain, View2<const T> dy,
                              View2<const T> x, View1<const Accumulate<T>> inverse_rms) {
  const std::int64_t rows = extent(x, 0);
  const std::int64_t hidden = extent(x, 1);
  expect_shape(dgain, "dgain", {hidden});
  expect_shape(dy, "dy", {rows, hidden});
  expect_shape(inverse_rms, "inverse_rms", {rows});
  if constexpr (exec_on_host)
    backward_weight_by_blocks<T, false>("kernels/rms_norm_backward_weight", handle, dgain, {}, dy,
                                        x, {}, inverse_rms);
  else
    add_norm_sums<T>("kernels/rms_norm_backward_weight", handle, dgain, {}, dy, x, {}, inverse_rms);
}

#define TRIREME_INSTANTIATE(T)                                                                     \
  template void layer_norm_forward<T>(const Exec&, View2<T>, View1<Accumulate<T>>,                 \
                                      View1<Accumulate<T>>, View2<const T>, View1<const T>,        \
                                      View1<const T>, double);                                     \
  template void residual_layer_norm_forward<T>(                                                    \
      const Exec&, View2<T>, View1<Accumulate<T>>, View1<Accumulate<T>>, View2<T>, View2<const T>, \
      View2<const T>, const Dropout&, View1<const T>, View1<const T>, double);                     \
  template void layer_norm_backward_input<T>(const Exec&, View2<T>, View2<const T>,                \
                                             View2<const T>, View1<const Accumulate<T>>,           \
                                             View1<const Accumulate<T>>, View1<const T>, bool);    \
  template void layer_norm_backward_weight<T>(                                                     \
      const Handle&, View1<Accumulate<T>>, View1<Accumulate<T>>, View2<const T>, View2<const T>,   \
      View1<const Accumulate<T>>, View1<const Accumulate<T>>);                                     \
  template void rms_norm_forward<T>(const Exec&, View2<T>, View1<Accumulate<T>>, View2<const T>,   \
                                    View1<const T>, double, double);                               \
  template void residual_rms_norm_forward<T>(const Exec&, View2<T>, View1<Accumulate<T>>,          \
                                             View2<T>, View2<const T>, View2<const T>,             \
                                             const Dropout&, View1<const T>, double, double);      \
  template void rms_norm_backward_input<T>(const Exec&, View2<T>, View2<const T>, View2<const T>,  \
                                           View1<const Accumulate<T>>, View1<const T>, double,     \
                                           bool);                                                  \
  template void rms_norm_backward_weight<T>(const Handle&, View1<Accumulate<T>>, View2<const T>,   \
                                            View2<const T>, View1<const Accumulate<T>>);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(Bf16)
TRIREME_INSTANTIATE(Fp16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
