#pragma once

#include <trireme/kernels/packs.hpp>
#include <trireme/layout/token_places.hpp>
#include <trireme/tensor/views.hpp>

#include <cstdint>

/// Sums of selected rows in a fixed order, for gradients of tables on devices. A lane keeps its
/// columns of the sum in registers, and loads several rows before it adds the first of them.
namespace trireme::kernels {

/// Kokkos' team, on devices and in tests on hosts.
using TeamMember = DevicePolicy::member_type;

/// Number of columns of one team: with 128 lanes, each lane has 16 bytes of fp32.
inline constexpr std::int64_t ordered_columns = 512;

inline constexpr std::int64_t ordered_blocks(std::int64_t columns) {
  return (columns + ordered_columns - 1) / ordered_columns;
}

namespace detail {

/// to[c] += Σ_i from[row(i)·stride + c] for the columns of each lane, in the order of i.
template <int width, class T, class Row>
KOKKOS_FORCEINLINE_FUNCTION void add_ordered(const TeamMember& team, Accumulate<T>* to,
                                             std::int64_t columns, const T* from,
                                             std::int64_t stride, std::int64_t count,
                                             const Row& row) {
  using Acc = Accumulate<T>;
  using Sums = Pack<Acc, width>;
  using Values = Pack<T, width>;
  constexpr int batch = 8;
  for (std::int64_t c = team.team_rank() * width; c < columns; c += team.team_size() * width) {
    Sums sum = *reinterpret_cast<const Sums*>(to + c);
    std::int64_t i = 0;
    for (; i + batch <= count; i += batch) {
      Values values[batch];
      for (int b = 0; b < batch; ++b)
        values[b] = *reinterpret_cast<const Values*>(from + row(i + b) * stride + c);
      for (int b = 0; b < batch; ++b)
        for (int k = 0; k < width; ++k) sum.values[k] += static_cast<Acc>(values[b].values[k]);
    }
    for (; i < count; ++i) {
      const Values values = *reinterpret_cast<const Values*>(from + row(i) * stride + c);
      for (int k = 0; k < width; ++k) sum.values[k] += static_cast<Acc>(values.values[k]);
    }
    *reinterpret_cast<Sums*>(to + c) = sum;
  }
}

}  // namespace detail

/// to[c] += Σ_i x[row(i), first + c] for i in [0, count) and c in [0, columns), in the order of i.
/// All lanes of a team call this function, and each lane calls row(i).
template <class T, class Row>
KOKKOS_FORCEINLINE_FUNCTION void add_ordered_rows(const TeamMember& team, Accumulate<T>* to,
                                                  const View2<const T>& x, std::int64_t first,
                                                  std::int64_t columns, std::int64_t count,
                                                  const Row& row) {
  constexpr int width = detail::pack_width<Accumulate<T>>;
  const T* from = x.data() + first;
  const auto stride = static_cast<std::int64_t>(x.stride(0));
  if (columns % width == 0 && stride % width == 0 && detail::in_packs<width>(to) &&
      detail::in_packs<width>(from))
    detail::add_ordered<width>(team, to, columns, from, stride, count, row);
  else
    detail::add_ordered<1>(team, to, columns, from, stride, count, row);
}

/// dtable[tokens[t] − first_id] += dx[t], in the order of t. For each token, one team per block of
/// columns lists the token's occurrences in scratch memory, in parts, and sums their rows.
template <class T>
struct SumOccurrences {
  using Acc = Accumulate<T>;
  static constexpr std::int64_t per_lane = 8;  // consecutive tokens that a lane compares
  static constexpr std::int64_t most_lanes = 128;
  static constexpr std::int64_t list_size = 2 * per_lane * most_lanes;
  static constexpr std::int64_t scratch_bytes =
      (list_size + 1) * static_cast<std::int64_t>(sizeof(std::int32_t));

  View2<Acc> dtable;  // [Vl, D]
  View2<const T> dx;  // [T, D]
  View1<const std::int32_t> tokens;
  std::int64_t first_id;

  std::int64_t teams() const { return extent(dx, 0) * ordered_blocks(extent(dx, 1)); }

  KOKKOS_FUNCTION void operator()(const TeamMember& team) const {
    const std::int64_t rows = extent(dx, 0);
    const std::int64_t t = team.league_rank() % rows;
    const std::int64_t column = team.league_rank() / rows * ordered_columns;
    const std::int32_t token = tokens(t);
    const std::int64_t id = token - first_id;
    if (id < 0 || id >= extent(dtable, 0) || occurs_before(team, token, t)) return;
    const std::int64_t left = extent(dx, 1) - column;
    const std::int64_t columns = left < ordered_columns ? left : ordered_columns;
    auto* list = reinterpret_cast<std::int32_t*>(
        team.team_scratch(0).get_shmem(static_cast<int>(scratch_bytes)));
    Acc* to = row_of(dtable, id) + column;
    const std::int64_t step = team.team_size() * per_lane;
    std::int64_t count = 0;
    for (std::int64_t first = t; first < rows; first += step) {
      count = append(team, list, count, token, first);
      const bool last = first + step >= rows;
      if (!last && count + step <= list_size) continue;
      add_ordered_rows<T>(team, to, dx, column, columns, count,
                          [=](std::int64_t i) { return static_cast<std::int64_t>(list[i]); });
      count = 0;
      team.team_barrier();  // the next part overwrites the list
    }
  }

 private:
  KOKKOS_FUNCTION bool occurs_before(const TeamMember& team, std::int32_t token,
                                     std::int64_t t) const {
    const std::int32_t* all = tokens.data();
    return sum_lanes<int>(team, t, [=](std::int64_t u) { return all[u] == token ? 1 : 0; }) > 0;
  }

  /// Appends the occurrences of `token` among the next per_lane · team_size() tokens from `first`
  /// on, in order, and returns the list's new length. Ends with a barrier.
  KOKKOS_FUNCTION std::int64_t append(const TeamMember& team, std::int32_t* list,
                                      std::int64_t count, std::int32_t token,
                                      std::int64_t first) const {
    const std::int64_t begin = first + team.team_rank() * per_lane;
    const std::int64_t rest = extent(dx, 0) - begin;
    unsigned found = 0;
    int mine = 0;
    for (int k = 0; k < per_lane; ++k)
      if (k < rest && tokens(begin + k) == token) {
        found |= 1U << k;
        ++mine;
      }
    std::int64_t place = count + team.team_scan(mine);
    for (int k = 0; k < per_lane; ++k)
      if ((found >> k & 1U) != 0) list[place++] = static_cast<std::int32_t>(begin + k);
    if (team.team_rank() == team.team_size() - 1)
      list[list_size] = static_cast<std::int32_t>(place);
    team.team_barrier();
    return list[list_size];
  }
};

/// dpositions[p(r)] += dx[r], in the order of r, where p(r) = places.position((first_row + r) mod
/// n) is the position of row r. Rows r, r + n, … have the same position.
template <class T>
struct SumPositions {
  View2<Accumulate<T>> dpositions;   // [S, D]
  View2<const T> dx;                 // [R, D]
  std::int64_t sequence, first_row;  ///< n = sequence
  layout::TokenPlaces places = {};

  KOKKOS_FUNCTION std::int64_t positions() const {
    return sequence < extent(dx, 0) ? sequence : extent(dx, 0);
  }
  std::int64_t teams() const { return positions() * ordered_blocks(extent(dx, 1)); }

  KOKKOS_FUNCTION void operator()(const TeamMember& team) const {
    const std::int64_t first = team.league_rank() % positions();
    const std::int64_t column = team.league_rank() / positions() * ordered_columns;
    const std::int64_t left = extent(dx, 1) - column;
    const std::int64_t step = sequence;
    add_ordered_rows<T>(
        team, row_of(dpositions, places.position((first_row + first) % sequence)) + column, dx,
        column, left < ordered_columns ? left : ordered_columns,
        (extent(dx, 0) - first + step - 1) / step,
        [=](std::int64_t i) { return first + i * step; });
  }
};

}  // namespace trireme::kernels
