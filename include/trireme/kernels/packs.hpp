#pragma once

#include <trireme/kernels/lanes.hpp>
#include <trireme/tensor/views.hpp>

#include <algorithm>
#include <cstdint>

/// Elementwise functions of rows, distributed over lanes. On devices, a lane processes a pack of
/// neighbouring elements: 16 bytes of the row with the largest elements. Packs require rows aligned
/// to packs; sums, copies and functions with two results also require a whole number of packs.
namespace trireme::kernels {
namespace detail {

template <class T, int width>
struct alignas(static_cast<std::size_t>(width) * sizeof(T)) Pack {
  T values[width];
};

/// Number of elements of a pack in rows of these types: 16 bytes of the largest type.
template <class... T>
inline constexpr int pack_width = 16 / static_cast<int>(std::max({sizeof(T)...}));

template <int width, class T>
KOKKOS_FORCEINLINE_FUNCTION bool in_packs(const T* row) {
  return reinterpret_cast<std::uintptr_t>(row) % (static_cast<std::size_t>(width) * sizeof(T)) == 0;
}

template <int width, class T>
KOKKOS_FORCEINLINE_FUNCTION const Pack<T, width>& pack_at(const T* row, std::int64_t first) {
  return *reinterpret_cast<const Pack<T, width>*>(row + first);
}

/// All loads come before the store, so that `to` may also be an input row.
template <int width, class F, class To, class... From>
KOKKOS_FORCEINLINE_FUNCTION void map_pack(const F& f, std::int64_t first, To* to,
                                          const Pack<From, width>... from) {
  Pack<To, width> out;
  for (int k = 0; k < width; ++k)
    out.values[k] = static_cast<To>(f(first + k, static_cast<Accumulate<From>>(from.values[k])...));
  *reinterpret_cast<Pack<To, width>*>(to + first) = out;
}

template <int width, class F, class To, class... From>
KOKKOS_FORCEINLINE_FUNCTION void map_pack_to_two(const F& f, std::int64_t first, To* to, To* other,
                                                 const Pack<From, width>... from) {
  Pack<To, width> out;
  Pack<To, width> beside;
  for (int k = 0; k < width; ++k) {
    const auto both = f(first + k, static_cast<Accumulate<From>>(from.values[k])...);
    out.values[k] = static_cast<To>(both.first);
    beside.values[k] = static_cast<To>(both.second);
  }
  *reinterpret_cast<Pack<To, width>*>(to + first) = out;
  *reinterpret_cast<Pack<To, width>*>(other + first) = beside;
}

template <class Acc, int width, class F, class... From>
KOKKOS_FORCEINLINE_FUNCTION Acc sum_pack(const F& f, std::int64_t first,
                                         const Pack<From, width>... from) {
  Acc sum = 0;
  for (int k = 0; k < width; ++k)
    sum += static_cast<Acc>(f(first + k, static_cast<Accumulate<From>>(from.values[k])...));
  return sum;
}

template <int width, class T>
KOKKOS_FORCEINLINE_FUNCTION void store_pack([[maybe_unused]] T* row, std::int64_t first,
                                            const Pack<std::remove_const_t<T>, width>& values) {
  if constexpr (!std::is_const_v<T>) *reinterpret_cast<Pack<T, width>*>(row + first) = values;
}

/// All loads come before the first call of f, and all stores after the last call.
template <int width, class F, class... Row>
KOKKOS_FORCEINLINE_FUNCTION void update_pack(const F& f, std::int64_t first, Row*... rows) {
  const auto update = [&](Pack<std::remove_const_t<Row>, width>... values) {
    for (int k = 0; k < width; ++k) f(values.values[k]...);
    (store_pack<width>(rows, first, values), ...);
  };
  update(pack_at<width>(static_cast<const std::remove_const_t<Row>*>(rows), first)...);
}

template <class Member, class F, class... Row>
KOKKOS_FORCEINLINE_FUNCTION void update_by_packs(const Member& team, std::int64_t n, const F& f,
                                                 Row*... rows) {
  constexpr int width = pack_width<std::remove_const_t<Row>...>;
  const std::int64_t packs = (in_packs<width>(rows) && ...) ? n / width : 0;
  for_lanes(team, packs, [&](std::int64_t p) { update_pack<width>(f, p * width, rows...); });
  const std::int64_t first = packs * width;
  for_lanes(team, n - first, [&](std::int64_t i) { f(rows[first + i]...); });
}

/// map_lanes on devices; tests also run it on hosts.
template <class Member, class F, class To, class... From>
KOKKOS_FORCEINLINE_FUNCTION void map_by_packs(const Member& team, std::int64_t n, To* to,
                                              const F& f, const From*... from) {
  constexpr int width = pack_width<To, From...>;
  const bool aligned = in_packs<width>(to) && (in_packs<width>(from) && ...);
  const std::int64_t packs = aligned ? n / width : 0;
  for_lanes(team, packs, [&](std::int64_t p) {
    map_pack<width>(f, p * width, to, pack_at<width>(from, p * width)...);
  });
  const std::int64_t first = packs * width;
  for_lanes(team, n - first, [&](std::int64_t k) {
    const std::int64_t i = first + k;
    to[i] = static_cast<To>(f(i, static_cast<Accumulate<From>>(from[i])...));
  });
}

template <class Member, class F, class To, class... From>
KOKKOS_FORCEINLINE_FUNCTION void map_to_two_by_elements(const Member& team, std::int64_t n, To* to,
                                                        To* other, const F& f,
                                                        const From*... from) {
  for_lanes(team, n, [&](std::int64_t i) {
    const auto both = f(i, static_cast<Accumulate<From>>(from[i])...);
    to[i] = static_cast<To>(both.first);
    other[i] = static_cast<To>(both.second);
  });
}

template <class Member, class F, class To, class... From>
KOKKOS_FORCEINLINE_FUNCTION void map_to_two_by_packs(const Member& team, std::int64_t n, To* to,
                                                     To* other, const F& f, const From*... from) {
  constexpr int width = pack_width<To, From...>;
  if (n % width == 0 && in_packs<width>(to) && in_packs<width>(other) &&
      (in_packs<width>(from) && ...)) {
    for_lanes(team, n / width, [&](std::int64_t p) {
      map_pack_to_two<width>(f, p * width, to, other, pack_at<width>(from, p * width)...);
    });
    return;
  }
  map_to_two_by_elements(team, n, to, other, f, from...);
}

template <class Acc, class Member, class F, class... From>
KOKKOS_FORCEINLINE_FUNCTION Acc sum_by_packs(const Member& team, std::int64_t n, const F& f,
                                             const From*... from) {
  constexpr int width = pack_width<From...>;
  if (n % width == 0 && (in_packs<width>(from) && ...))
    return sum_lanes<Acc>(team, n / width, [&](std::int64_t p) {
      return sum_pack<Acc, width>(f, p * width, pack_at<width>(from, p * width)...);
    });
  return sum_lanes<Acc>(
      team, n, [&](std::int64_t i) { return f(i, static_cast<Accumulate<From>>(from[i])...); });
}

/// Largest element of a row, including the elements after the last pack.
template <class Acc, class Member, class T>
KOKKOS_FORCEINLINE_FUNCTION Acc max_by_packs(const Member& team, std::int64_t n, const T* row) {
  constexpr int width = pack_width<T>;
  const std::int64_t packs = in_packs<width>(row) ? n / width : 0;
  return max_lanes<Acc>(team, packs + n - packs * width, [&](std::int64_t p) {
    if (p >= packs) return static_cast<Acc>(row[packs * (width - 1) + p]);
    const Pack<T, width> pack = pack_at<width>(row, p * width);
    Acc largest = -infinity<Acc>;
    for (int k = 0; k < width; ++k) {
      const Acc value = static_cast<Acc>(pack.values[k]);
      largest = value > largest ? value : largest;
    }
    return largest;
  });
}

}  // namespace detail

/// to[i] = f(i, from[i]...) for i in [0, n), distributed over the lanes like for_lanes. f takes
/// values of type Accumulate<From>; its result is converted to To. `to` may be an input row.
template <class Member, class F, class To, class... From>
KOKKOS_FORCEINLINE_FUNCTION void map_lanes(const Member& team, std::int64_t n, To* to, const F& f,
                                           const From*... from) {
  if constexpr (std::is_same_v<Member, HostTeam>)
    for_lanes(team, n, [&](std::int64_t i) {
      to[i] = static_cast<To>(f(i, static_cast<Accumulate<From>>(from[i])...));
    });
  else
    detail::map_by_packs(team, n, to, f, from...);
}

/// Calls f(rows[i]...) for i in [0, n), distributed over the lanes like for_lanes. f takes
/// references, and may change the elements of rows that are not const. Rows must not overlap.
template <class Member, class F, class... Row>
KOKKOS_FORCEINLINE_FUNCTION void update_lanes(const Member& team, std::int64_t n, const F& f,
                                              Row*... rows) {
  if constexpr (std::is_same_v<Member, HostTeam>)
    for_lanes(team, n, [&](std::int64_t i) { f(rows[i]...); });
  else
    detail::update_by_packs(team, n, f, rows...);
}

/// A function's results for two rows.
template <class Acc>
struct Two {
  Acc first, second;
};

/// (to[i], other[i]) = f(i, from[i]...) for i in [0, n), as in map_lanes; f returns a Two. Either
/// output row may be an input row.
template <class Member, class F, class To, class... From>
KOKKOS_FORCEINLINE_FUNCTION void map_lanes_to_two(const Member& team, std::int64_t n, To* to,
                                                  To* other, const F& f, const From*... from) {
  if constexpr (std::is_same_v<Member, HostTeam>)
    detail::map_to_two_by_elements(team, n, to, other, f, from...);
  else
    detail::map_to_two_by_packs(team, n, to, other, f, from...);
}

/// Copies to[i] = from[i] for i in [0, n).
template <class Member, class T>
KOKKOS_FORCEINLINE_FUNCTION void copy_lanes(const Member& team, std::int64_t n, T* to,
                                            const T* from) {
  if constexpr (!std::is_same_v<Member, HostTeam>) {
    constexpr int width = detail::pack_width<T>;
    if (n % width == 0 && detail::in_packs<width>(to) && detail::in_packs<width>(from)) {
      using Pack = detail::Pack<T, width>;
      for_lanes(team, n / width, [&](std::int64_t p) {
        reinterpret_cast<Pack*>(to)[p] = reinterpret_cast<const Pack*>(from)[p];
      });
      return;
    }
  }
  for_lanes(team, n, [&](std::int64_t i) { to[i] = from[i]; });
}

/// Sum of f(i, from[i]...) over i in [0, n) in type Acc, as in sum_lanes.
template <class Acc, class Member, class F, class... From>
KOKKOS_FORCEINLINE_FUNCTION Acc sum_of(const Member& team, std::int64_t n, const F& f,
                                       const From*... from) {
  if constexpr (std::is_same_v<Member, HostTeam>)
    return sum_lanes<Acc>(
        team, n, [&](std::int64_t i) { return f(i, static_cast<Accumulate<From>>(from[i])...); });
  else
    return detail::sum_by_packs<Acc>(team, n, f, from...);
}

/// Largest row[i] over i in [0, n), as in max_lanes.
template <class Acc, class Member, class T>
KOKKOS_FORCEINLINE_FUNCTION Acc max_of(const Member& team, std::int64_t n, const T* row) {
  if constexpr (std::is_same_v<Member, HostTeam>)
    return max_lanes<Acc>(team, n, [&](std::int64_t i) { return row[i]; });
  else
    return detail::max_by_packs<Acc>(team, n, row);
}

}  // namespace trireme::kernels
