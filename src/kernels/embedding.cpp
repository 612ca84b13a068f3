// Look-ups of tokens, positions, segments and selected rows. The gradients of tables are summed in
// a fixed order.
#include <trireme/kernels/embedding.hpp>

#include <trireme/base/check.hpp>
#include <trireme/kernels/ordered_rows.hpp>
#include <trireme/kernels/packs.hpp>
#include <trireme/tensor/expect.hpp>

#include <algorithm>

namespace trireme::kernels {

namespace {

/// y[q] = x[rows[q] − first_row] if x holds the row, otherwise 0.
template <class T>
void look_up(const char* label, const Exec& exec, View2<T> y, const char* name, View2<const T> x,
             View1<const std::int32_t> rows, std::int64_t first_row) {
  const std::int64_t count = extent(rows, 0);
  const std::int64_t held = extent(x, 0);
  const std::int64_t hidden = extent(x, 1);
  expect_shape(y, name, {count, hidden});
  for_rows(
      label, exec, count, KOKKOS_LAMBDA(const Team& team, std::int64_t q) {
        const std::int64_t row = rows(q) - first_row;
        T* y_row = row_of(y, q);
        if (row >= 0 && row < held) {
          const T* x_row = row_of(x, row);
          copy_lanes(team, hidden, y_row, x_row);
        } else {
          map_lanes(team, hidden, y_row, [](std::int64_t) { return T(0); });
        }
      });
}

}  // namespace

template <class T>
void embedding_lookup(const Exec& exec, View2<T> x, View1<const std::int32_t> tokens,
                      View2<const T> table, std::int64_t first_id) {
  look_up("kernels/embedding_lookup", exec, x, "x", table, tokens, first_id);
}

template <class T>
void pick_rows(const Exec& exec, View2<T> y, View2<const T> x, View1<const std::int32_t> rows,
               std::int64_t first_row) {
  look_up("kernels/pick_rows", exec, y, "y", x, rows, first_row);
}

template <class T>
void place_rows(const Exec& exec, View2<T> x, View2<const T> y, View1<const std::int32_t> rows,
                std::int64_t first_row) {
  const std::int64_t count = extent(rows, 0);
  const std::int64_t held = extent(x, 0);
  const std::int64_t hidden = extent(x, 1);
  expect_shape(y, "y", {count, hidden});
  for_rows(
      "kernels/place_rows", exec, count, KOKKOS_LAMBDA(const Team& team, std::int64_t q) {
        const std::int64_t row = rows(q) - first_row;
        if (row < 0 || row >= held) return;
        T* x_row = row_of(x, row);
        const T* y_row = row_of(y, q);
        copy_lanes(team, hidden, x_row, y_row);
      });
}

namespace {

template <class T>
void expect_positions(View2<T> positions, const char* name, std::int64_t sequence,
                      std::int64_t hidden, std::int64_t first_row,
                      const layout::TokenPlaces& places) {
  expect_shape(positions, name, {places.is_cut() ? places.sequence : sequence, hidden});
  check(!places.is_cut() || places.held == sequence, sequence, " tokens of a sample, but ",
        places.held, " places");
  check(first_row >= 0, "first row ", first_row, ", expected 0 or more");
}

}  // namespace

namespace {

/// x[r] += table[row(r)].
template <class T, class F>
void add_rows(const char* label, const Exec& exec, View2<T> x, View2<const T> table, const F& row) {
  using Acc = Accumulate<T>;
  const std::int64_t hidden = extent(x, 1);
  for_rows(
      label, exec, extent(x, 0), KOKKOS_LAMBDA(const Team& team, std::int64_t r) {
        const T* from = row_of(table, row(r));
        T* x_row = row_of(x, r);
        map_lanes(
            team, hidden, x_row, [](std::int64_t, Acc v, Acc more) { return v + more; }, x_row,
            from);
      });
}

}  // namespace

template <class T>
void add_positions(const Exec& exec, View2<T> x, View2<const T> positions, std::int64_t sequence,
                   std::int64_t first_row, const layout::TokenPlaces& places) {
  expect_positions(positions, "positions", sequence, extent(x, 1), first_row, places);
  const layout::TokenPlaces at = places;
  add_rows<T>(
      "kernels/add_positions", exec, x, positions,
      KOKKOS_LAMBDA(std::int64_t r) { return at.position((first_row + r) % sequence); });
}

template <class T>
void add_positions(const Exec& exec, View2<T> x, View2<const T> table,
                   View1<const std::int32_t> positions) {
  expect_shape(table, "table", {extent(table, 0), extent(x, 1)});
  expect_shape(positions, "positions", {extent(x, 0)});
  add_rows<T>(
      "kernels/add_positions", exec, x, table,
      KOKKOS_LAMBDA(std::int64_t r)->std::int64_t { return positions(r); });
}

namespace {

/// Host: sums the rows in order; each thread has a block of columns.
template <class T>
void lookup_backward_by_blocks(const char* label, const Exec& exec, View2<Accumulate<T>> dtable,
                               View2<const T> dx, View1<const std::int32_t> tokens,
                               std::int64_t first_id) {
  using Acc = Accumulate<T>;
  const std::int64_t rows = extent(dx, 0);
  const std::int64_t ids = extent(dtable, 0);
  const std::int64_t hidden = extent(dx, 1);
  const std::int64_t share = (hidden + exec.concurrency() - 1) / exec.concurrency();
  const std::int64_t width = std::max<std::int64_t>((share + 63) / 64 * 64, 64);
  for_rows(
      label, exec, (hidden + width - 1) / width,
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

/// Device: runs a functor of ordered_rows.hpp.
template <class Functor>
void sum_ordered_rows(const char* label, const Exec& exec, const Functor& f, std::int64_t scratch) {
  if (f.teams() == 0) return;
  const auto policy = DevicePolicy(exec, static_cast<int>(f.teams()), row_threads(exec))
                          .set_scratch_size(0, Kokkos::PerTeam(static_cast<int>(scratch)));
  Kokkos::parallel_for(label, policy, f);
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
    lookup_backward_by_blocks<T>("kernels/embedding_lookup_backward", exec, dtable, dx, tokens,
                                 first_id);
  else
    sum_ordered_rows("kernels/embedding_lookup_backward", exec,
                     SumOccurrences<T>{dtable, dx, tokens, first_id},
                     SumOccurrences<T>::scratch_bytes);
}

namespace {

/// Host: one iteration sums the rows r, r + sequence, …, which have the same position.
template <class T>
void positions_backward_by_rows(const Exec& exec, View2<Accumulate<T>> dpositions,
                                View2<const T> dx, std::int64_t sequence, std::int64_t first_row,
                                const layout::TokenPlaces& places) {
  using Acc = Accumulate<T>;
  const std::int64_t rows = extent(dx, 0);
  const std::int64_t hidden = extent(dx, 1);
  const layout::TokenPlaces at = places;
  for_rows(
      "kernels/positions_backward", exec, std::min(sequence, rows),
      KOKKOS_LAMBDA(const Team& team, std::int64_t first) {
        Acc* to = row_of(dpositions, at.position((first_row + first) % sequence));
        for (std::int64_t r = first; r < rows; r += sequence) {
          const T* from = row_of(dx, r);
          map_lanes(
              team, hidden, to, [](std::int64_t, Acc sum, Acc v) { return sum + v; }, to, from);
        }
      });
}

}  // namespace

template <class T>
void positions_backward(const Exec& exec, View2<Accumulate<T>> dpositions, View2<const T> dx,
                        std::int64_t sequence, std::int64_t first_row,
                        const layout::TokenPlaces& places) {
  expect_positions(dpositions, "dpositions", sequence, extent(dx, 1), first_row, places);
  if constexpr (exec_on_host)
    positions_backward_by_rows<T>(exec, dpositions, dx, sequence, first_row, places);
  else
    sum_ordered_rows("kernels/positions_backward", exec,
                     SumPositions<T>{dpositions, dx, sequence, first_row, places}, 0);
}

template <class T>
void add_segments(const Exec& exec, View2<T> x, View2<const T> table,
                  View1<const std::int32_t> segments, std::int64_t first_row) {
  const std::int64_t hidden = extent(x, 1);
  expect_shape(table, "table", {2, hidden});
  check(first_row >= 0 && first_row + extent(x, 0) <= extent(segments, 0), "rows [", first_row,
        ", ", first_row + extent(x, 0), ") are not within the ", extent(segments, 0),
        " segment ids");
  add_rows<T>(
      "kernels/add_segments", exec, x, table,
      KOKKOS_LAMBDA(std::int64_t r)->std::int64_t { return segments(first_row + r) == 0 ? 0 : 1; });
}

namespace {

/// Device: one team sums one column.
template <class T>
void segments_backward_by_columns(const Exec& exec, View2<Accumulate<T>> dtable, View2<const T> dx,
                                  View1<const std::int32_t> segments) {
  using Acc = Accumulate<T>;
  const std::int64_t rows = extent(dx, 0);
  for_rows(
      "kernels/segments_backward", exec, extent(dx, 1),
      KOKKOS_LAMBDA(const Team& team, std::int64_t d) {
        for (int segment = 0; segment < 2; ++segment) {
          const Acc sum = sum_lanes<Acc>(team, rows, [&](std::int64_t r) {
            return (segments(r) == 0 ? 0 : 1) == segment ? static_cast<Acc>(dx(r, d)) : Acc(0);
          });
          once(team, [&]() { dtable(segment, d) += sum; });
        }
      });
}

}  // namespace

template <class T>
void segments_backward(const Exec& exec, View2<Accumulate<T>> dtable, View2<const T> dx,
                       View1<const std::int32_t> segments, std::int64_t first_row) {
  const std::int64_t rows = extent(dx, 0);
  expect_shape(dtable, "dtable", {2, extent(dx, 1)});
  check(first_row >= 0 && first_row + rows <= extent(segments, 0), "rows [", first_row, ", ",
        first_row + rows, ") are not within the ", extent(segments, 0), " segment ids");
  const View1<const std::int32_t> mine(segments.data() + first_row, static_cast<std::size_t>(rows));
  if constexpr (exec_on_host)
    lookup_backward_by_blocks<T>("kernels/segments_backward", exec, dtable, dx, mine, 0);
  else
    segments_backward_by_columns<T>(exec, dtable, dx, mine);
}

#define TRIREME_INSTANTIATE(T)                                                                    \
  template void embedding_lookup<T>(const Exec&, View2<T>, View1<const std::int32_t>,             \
                                    View2<const T>, std::int64_t);                                \
  template void add_positions<T>(const Exec&, View2<T>, View2<const T>, std::int64_t,             \
                                 std::int64_t, const layout::TokenPlaces&);                       \
  template void add_positions<T>(const Exec&, View2<T>, View2<const T>,                           \
                                 View1<const std::int32_t>);                                      \
  template void embedding_lookup_backward<T>(const Exec&, View2<Accumulate<T>>, View2<const T>,   \
                                             View1<const std::int32_t>, std::int64_t);            \
  template void positions_backward<T>(const Exec&, View2<Accumulate<T>>, View2<const T>,          \
                                      std::int64_t, std::int64_t, const layout::TokenPlaces&);    \
  template void add_segments<T>(const Exec&, View2<T>, View2<const T>, View1<const std::int32_t>, \
                                std::int64_t);                                                    \
  template void segments_backward<T>(const Exec&, View2<Accumulate<T>>, View2<const T>,           \
                                     View1<const std::int32_t>, std::int64_t);                    \
  template void pick_rows<T>(const Exec&, View2<T>, View2<const T>, View1<const std::int32_t>,    \
                             std::int64_t);                                                       \
  template void place_rows<T>(const Exec&, View2<T>, View2<const T>, View1<const std::int32_t>,   \
                              std::int64_t);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(Bf16)
TRIREME_INSTANTIATE(Fp16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
