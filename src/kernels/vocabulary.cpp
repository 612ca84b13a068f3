#include <trireme/base/check.hpp>
#include <trireme/kernels/lanes.hpp>
#include <trireme/kernels/vocabulary.hpp>
#include <trireme/tensor/expect.hpp>

#include <algorithm>

namespace trireme::kernels {

template <class T>
void embedding_forward(const Exec& exec, View2<T> x, View1<const std::int32_t> tokens,
                       View2<const T> table, View2<const T> positions, std::int64_t sequence) {
  using Acc = Accumulate<T>;
  const std::int64_t rows = extent(tokens, 0);
  const std::int64_t hidden = extent(table, 1);
  expect_shape(x, "x", {rows, hidden});
  expect_shape(positions, "positions", {sequence, hidden});
  for_rows(
      "kernels/embedding_forward", exec, rows, KOKKOS_LAMBDA(const Team& team, std::int64_t t) {
        const T* token_row = row_of(table, tokens(t));
        const T* position_row = row_of(positions, t % sequence);
        T* x_row = row_of(x, t);
        for_lanes(team, hidden, [&](std::int64_t d) {
          x_row[d] =
              static_cast<T>(static_cast<Acc>(token_row[d]) + static_cast<Acc>(position_row[d]));
        });
      });
}

namespace {

/// Host: rows in their order; each thread has a block of columns, so that none writes what another
/// one adds to.
template <class T>
void table_backward_by_blocks(const Exec& exec, View2<Accumulate<T>> dtable, View2<const T> dx,
                              View1<const std::int32_t> tokens) {
  using Acc = Accumulate<T>;
  const std::int64_t rows = extent(dx, 0);
  const std::int64_t hidden = extent(dx, 1);
  const std::int64_t share = (hidden + exec.concurrency() - 1) / exec.concurrency();
  const std::int64_t width = std::max<std::int64_t>((share + 63) / 64 * 64, 64);
  for_rows(
      "kernels/embedding_backward", exec, (hidden + width - 1) / width,
      KOKKOS_LAMBDA(const Team& team, std::int64_t block) {
        const std::int64_t first = block * width;
        const std::int64_t columns = hidden - first < width ? hidden - first : width;
        for (std::int64_t t = 0; t < rows; ++t) {
          Acc* to = row_of(dtable, tokens(t)) + first;
          const T* from = row_of(dx, t) + first;
          for_lanes(team, columns, [&](std::int64_t d) { to[d] += static_cast<Acc>(from[d]); });
        }
      });
}

/// Device: the team of a token's first occurrence adds all of them, in their order. Quadratic in T,
/// but only in reads of token ids that stay in the cache.
template <class T>
void table_backward_by_occurrence(const Exec& exec, View2<Accumulate<T>> dtable, View2<const T> dx,
                                  View1<const std::int32_t> tokens) {
  using Acc = Accumulate<T>;
  const std::int64_t rows = extent(dx, 0);
  const std::int64_t hidden = extent(dx, 1);
  for_rows(
      "kernels/embedding_backward", exec, rows, KOKKOS_LAMBDA(const Team& team, std::int64_t t) {
        const std::int32_t token = tokens(t);
        const int earlier =
            sum_lanes<int>(team, t, [&](std::int64_t u) { return tokens(u) == token ? 1 : 0; });
        if (earlier > 0) return;
        Acc* to = row_of(dtable, token);
        for (std::int64_t u = t; u < rows; ++u) {
          if (tokens(u) != token) continue;
          const T* from = row_of(dx, u);
          for_lanes(team, hidden, [&](std::int64_t d) { to[d] += static_cast<Acc>(from[d]); });
        }
      });
}

}  // namespace

template <class T>
void embedding_backward(const Exec& exec, View2<Accumulate<T>> dtable,
                        View2<Accumulate<T>> dpositions, View2<const T> dx,
                        View1<const std::int32_t> tokens, std::int64_t sequence) {
  using Acc = Accumulate<T>;
  const std::int64_t rows = extent(dx, 0);
  const std::int64_t hidden = extent(dx, 1);
  expect_shape(tokens, "tokens", {rows});
  expect_shape(dtable, "dtable", {extent(dtable, 0), hidden});
  expect_shape(dpositions, "dpositions", {sequence, hidden});
  if constexpr (exec_on_host)
    table_backward_by_blocks<T>(exec, dtable, dx, tokens);
  else
    table_backward_by_occurrence<T>(exec, dtable, dx, tokens);
  for_rows(
      "kernels/embedding_backward_positions", exec, std::min(sequence, rows),
      KOKKOS_LAMBDA(const Team& team, std::int64_t s) {
        Acc* to = row_of(dpositions, s);
        for (std::int64_t t = s; t < rows; t += sequence) {
          const T* from = row_of(dx, t);
          for_lanes(team, hidden, [&](std::int64_t d) { to[d] += static_cast<Acc>(from[d]); });
        }
      });
}

namespace {

/// Elements of a row of logits between two looks at the maximum: they stay in the first-level
/// cache.
constexpr std::int64_t softmax_chunk = 4096;

/// Of one row: the largest logit, and the sum of exp(logit - largest).
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
    const Acc part_largest = max_lanes<Acc>(team, count, [&](std::int64_t v) { return part[v]; });
    if (part_largest > largest) {
      sum *= static_cast<double>(fast_exp(largest - part_largest));
      largest = part_largest;
    }
    // Masked logits are -infinity: where there is nothing else so far, they must add 0 and not NaN.
    const Acc reference = largest == -infinity<Acc> ? Acc(0) : largest;
    sum += static_cast<double>(sum_lanes<Acc>(team, count, [&](std::int64_t v) {
      return fast_exp(static_cast<Acc>(part[v]) - reference);
    }));
  }
  return {largest, sum};
}

}  // namespace

template <class T>
void cross_entropy_forward(const Exec& exec, View1<double> loss, View2<const T> logits,
                           View1<const std::int32_t> targets) {
  const std::int64_t rows = extent(logits, 0);
  const std::int64_t vocabulary = extent(logits, 1);
  expect_shape(loss, "loss", {rows});
  expect_shape(targets, "targets", {rows});
  for_rows(
      "kernels/cross_entropy_forward", exec, rows, KOKKOS_LAMBDA(const Team& team, std::int64_t r) {
        const T* row = row_of(logits, r);
        const auto softmax = softmax_sum<T>(team, row, vocabulary);
        once(team, [&]() {
          const auto target = static_cast<double>(row[targets(r)]);
          loss(r) = math::log(softmax.sum) - (target - static_cast<double>(softmax.largest));
        });
      });
}

template <class T>
void cross_entropy_forward_backward(const Exec& exec, View1<double> loss, View2<T> logits,
                                    View1<const std::int32_t> targets, double scale) {
  using Acc = Accumulate<T>;
  const std::int64_t rows = extent(logits, 0);
  const std::int64_t vocabulary = extent(logits, 1);
  expect_shape(loss, "loss", {rows});
  expect_shape(targets, "targets", {rows});
  for_rows(
      "kernels/cross_entropy_forward_backward", exec, rows,
      KOKKOS_LAMBDA(const Team& team, std::int64_t r) {
        T* row = row_of(logits, r);
        const std::int64_t target = targets(r);
        const auto softmax = softmax_sum<T>(team, row, vocabulary);
        const Acc largest = softmax.largest;
        const auto target_logit = static_cast<Acc>(row[target]);
        const Acc factor = static_cast<Acc>(scale / softmax.sum);
        team.team_barrier();  // every lane has read the target's logit
        for_lanes(team, vocabulary, [&](std::int64_t v) {
          row[v] = static_cast<T>(factor * fast_exp(static_cast<Acc>(row[v]) - largest));
        });
        team.team_barrier();
        once(team, [&]() {
          const double shifted = static_cast<double>(target_logit) - static_cast<double>(largest);
          loss(r) = math::log(softmax.sum) - shifted;
          // softmax - 1 = expm1 of the log-probability keeps the gradient's relative accuracy where
          // softmax is near 1.
          row[target] = static_cast<T>(scale * math::expm1(shifted - math::log(softmax.sum)));
        });
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

#define TRIREME_INSTANTIATE(T)                                                                  \
  template void embedding_forward<T>(const Exec&, View2<T>, View1<const std::int32_t>,          \
                                     View2<const T>, View2<const T>, std::int64_t);             \
  template void embedding_backward<T>(const Exec&, View2<Accumulate<T>>, View2<Accumulate<T>>,  \
                                      View2<const T>, View1<const std::int32_t>, std::int64_t); \
  template void cross_entropy_forward<T>(const Exec&, View1<double>, View2<const T>,            \
                                         View1<const std::int32_t>);                            \
  template void cross_entropy_forward_backward<T>(const Exec&, View1<double>, View2<T>,         \
                                                  View1<const std::int32_t>, double);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(double)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
