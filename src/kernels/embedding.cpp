#include <trireme/base/check.hpp>
#include <trireme/kernels/embedding.hpp>
#include <trireme/kernels/lanes.hpp>
#include <trireme/tensor/expect.hpp>

#include <algorithm>

namespace trireme::kernels {

template <class T>
void embedding_lookup(const Exec& exec, View2<T> x, View1<const std::int32_t> tokens,
                      View2<const T> table, std::int64_t first_id) {
  const std::int64_t rows = extent(tokens, 0);
  const std::int64_t ids = extent(table, 0);
  const std::int64_t hidden = extent(table, 1);
  expect_shape(x, "x", {rows, hidden});
  for_rows(
      "kernels/embedding_lookup", exec, rows, KOKKOS_LAMBDA(const Team& team, std::int64_t t) {
        const std::int64_t id = tokens(t) - first_id;
        T* x_row = row_of(x, t);
        if (id >= 0 && id < ids) {
          const T* from = row_of(table, id);
          for_lanes(team, hidden, [&](std::int64_t d) { x_row[d] = from[d]; });
        } else {
          for_lanes(team, hidden, [&](std::int64_t d) { x_row[d] = T(0); });
        }
      });
}

template <class T>
void add_positions(const Exec& exec, View2<T> x, View2<const T> positions, std::int64_t sequence,
                   std::int64_t first_row) {
  using Acc = Accumulate<T>;
  const std::int64_t hidden = extent(x, 1);
  expect_shape(positions, "positions", {sequence, hidden});
  check(first_row >= 0, "first row ", first_row, ", expected 0 or more");
  for_rows(
      "kernels/add_positions", exec, extent(x, 0), KOKKOS_LAMBDA(const Team& team, std::int64_t r) {
        const T* from = row_of(positions, (first_row + r) % sequence);
        T* x_row = row_of(x, r);
        for_lanes(team, hidden, [&](std::int64_t d) {
          x_row[d] = static_cast<T>(static_cast<Acc>(x_row[d]) + static_cast<Acc>(from[d]));
        });
      });
}

namespace {

/// Host: rows in their order; each thread has a block of columns, so that none writes what another
/// one adds to.
template <class T>
void lookup_backward_by_blocks(const Exec& exec, View2<Accumulate<T>> dtable, View2<const T> dx,
                               View1<const std::int32_t> tokens, std::int64_t first_id) {
  using Acc = Accumulate<T>;
  const std::int64_t rows = extent(dx, 0);
  const std::int64_t ids = extent(dtable, 0);
  const std::int64_t hidden = extent(dx, 1);
  const std::int64_t share = (hidden + exec.concurrency() - 1) / exec.concurrency();
  const std::int64_t width = std::max<std::int64_t>((share + 63) / 64 * 64, 64);
  for_rows(
      "kernels/embedding_lookup_backward", exec, (hidden + width - 1) / width,
      KOKKOS_LAMBDA(const Team& team, std::int64_t block) {
        const std::int64_t first = block * width;
        const std::int64_t columns = hidden - first < width ? hidden - first : width;
        for (std::int64_t t = 0; t < rows; ++t) {
          const std::int64_t id = tokens(t) - first_id;
          if (id < 0 || id >= ids) continue;
          Acc* to = row_of(dtable, id) + first;
          const T* from = row_of(dx, t) + first;
          for_lanes(team, columns, [&](std::int64_t d) { to[d] += static_cast<Acc>(from[d]); });
        }
      });
}

/// Device: the team of a token's first occurrence adds all of them, in their order. Quadratic in T,
/// but only in reads of token ids that stay in the cache.
template <class T>
void lookup_backward_by_occurrence(const Exec& exec, View2<Accumulate<T>> dtable, View2<const T> dx,
                                   View1<const std::int32_t> tokens, std::int64_t first_id) {
  using Acc = Accumulate<T>;
  const std::int64_t rows = extent(dx, 0);
  const std::int64_t ids = extent(dtable, 0);
  const std::int64_t hidden = extent(dx, 1);
  for_rows(
      "kernels/embedding_lookup_backward", exec, rows,
      KOKKOS_LAMBDA(const Team& team, std::int64_t t) {
        const std::int32_t token = tokens(t);
        const std::int64_t id = token - first_id;
        if (id < 0 || id >= ids) return;
        const int earlier =
            sum_lanes<int>(team, t, [&](std::int64_t u) { return tokens(u) == token ? 1 : 0; });
        if (earlier > 0) return;
        Acc* to = row_of(dtable, id);
        for (std::int64_t u = t; u < rows; ++u) {
          if (tokens(u) != token) continue;
          const T* from = row_of(dx, u);
          for_lanes(team, hidden, [&](std::int64_t d) { to[d] += static_cast<Acc>(from[d]); });
        }
      });
}

}  // namespace

template <class T>
void embedding_lookup_backward(const Exec& exec, View2<Accumulate<T>> dtable, View2<const T> dx,
                               View1<const std::int32_t> tokens, std::int64_t first_id) {
  const std::int64_t rows = extent(dx, 0);
  expect_shape(tokens, "tokens", {rows});
  expect_shape(dtable, "dtable", {extent(dtable, 0), extent(dx, 1)});
  if (extent(dtable, 0) == 0) return;
  if constexpr (exec_on_host)
    lookup_backward_by_blocks<T>(exec, dtable, dx, tokens, first_id);
  else
    lookup_backward_by_occurrence<T>(exec, dtable, dx, tokens, first_id);
}

template <class T>
void positions_backward(const Exec& exec, View2<Accumulate<T>> dpositions, View2<const T> dx,
                        std::int64_t sequence, std::int64_t first_row) {
  using Acc = Accumulate<T>;
  const std::int64_t rows = extent(dx, 0);
  const std::int64_t hidden = extent(dx, 1);
  expect_shape(dpositions, "dpositions", {sequence, hidden});
  check(first_row >= 0, "first row ", first_row, ", expected 0 or more");
  // Rows r, r + S, … have one position.
  for_rows(
      "kernels/positions_backward", exec, std::min(sequence, rows),
      KOKKOS_LAMBDA(const Team& team, std::int64_t first) {
        Acc* to = row_of(dpositions, (first_row + first) % sequence);
        for (std::int64_t r = first; r < rows; r += sequence) {
          const T* from = row_of(dx, r);
          for_lanes(team, hidden, [&](std::int64_t d) { to[d] += static_cast<Acc>(from[d]); });
        }
      });
}

#define TRIREME_INSTANTIATE(T)                                                                  \
  template void embedding_lookup<T>(const Exec&, View2<T>, View1<const std::int32_t>,           \
                                    View2<const T>, std::int64_t);                              \
  template void add_positions<T>(const Exec&, View2<T>, View2<const T>, std::int64_t,           \
                                 std::int64_t);                                                 \
  template void embedding_lookup_backward<T>(const Exec&, View2<Accumulate<T>>, View2<const T>, \
                                             View1<const std::int32_t>, std::int64_t);          \
  template void positions_backward<T>(const Exec&, View2<Accumulate<T>>, View2<const T>,        \
                                      std::int64_t, std::int64_t);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(Bf16)
TRIREME_INSTANTIATE(Fp16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
