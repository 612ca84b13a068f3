#pragma once

#include <trireme/kernels/math.hpp>
#include <trireme/tensor/views.hpp>

#include <Kokkos_Core.hpp>

#include <cstdint>
#include <type_traits>

/// A team of lanes computes one row. On hosts the team is one thread, and its lanes are the lanes
/// of the vector unit (`#pragma omp simd`); on devices it is a Kokkos team. A row's kernel is
/// written once:
///
///   for_rows("kernels/share", exec, rows, KOKKOS_LAMBDA(const Team& team, std::int64_t row) {
///     const float* from = row_of(x, row);
///     float* to = row_of(y, row);
///     const float sum = sum_lanes<float>(team, n, [&](std::int64_t i) { return from[i]; });
///     for_lanes(team, n, [&](std::int64_t i) { to[i] = from[i] / sum; });
///   });
///
/// Lanes index pointers and not views, because GCC turns loads from a view into gathers.

/// Specifier of a function that is not inlined in builds for hosts. In builds for devices it is
/// inlined: a call would copy the object to local memory in every thread.
#if defined(KOKKOS_ENABLE_CUDA) || defined(KOKKOS_ENABLE_HIP) || defined(KOKKOS_ENABLE_SYCL)
#define TRIREME_APART_ON_HOSTS KOKKOS_FORCEINLINE_FUNCTION
#else
#define TRIREME_APART_ON_HOSTS [[gnu::noinline]] KOKKOS_FUNCTION
#endif

namespace trireme::kernels {

/// The team on hosts: a single thread.
struct HostTeam {
  KOKKOS_FORCEINLINE_FUNCTION void team_barrier() const {}
  KOKKOS_FORCEINLINE_FUNCTION int team_rank() const { return 0; }
};

/// Property of team policies: Kokkos passes a kernel's functor as an argument of the launch.
/// Without this property, Kokkos copies functors of more than 512 bytes to a CUDA device through
/// one buffer, and the host waits until the last kernel that uses the buffer has ended.
using LightKernel = Kokkos::Experimental::WorkItemProperty::HintLightWeight_t;
using DevicePolicy = Kokkos::TeamPolicy<Exec, Kokkos::IndexType<std::int64_t>, LightKernel>;
using HostPolicy = Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>;
using Team = std::conditional_t<exec_on_host, HostTeam, DevicePolicy::member_type>;

/// First element of row `row` of a [rows, n] view.
template <class View>
KOKKOS_FORCEINLINE_FUNCTION auto* row_of(const View& view, std::int64_t row) {
  static_assert(static_cast<int>(View::rank) == 2);
  return view.data() + row * static_cast<std::int64_t>(view.stride(0));
}

/// Calls f(i) for every i in [0, n), distributed over the lanes. The calls must be independent of
/// each other. Only after team.team_barrier() may a lane read data that other lanes wrote.
template <class Member, class F>
KOKKOS_FORCEINLINE_FUNCTION void for_lanes([[maybe_unused]] const Member& team, std::int64_t n,
                                           const F& f) {
  if constexpr (std::is_same_v<Member, HostTeam>) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) f(i);
  } else {
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, n), f);
  }
}

namespace detail {

/// Sum of f(i) over i in [0, n). Two accumulators of 64 bytes take alternate groups of values and
/// are added at the end. Their type is a vector, because GCC keeps arrays of sums in memory.
template <class Acc, class F>
inline __attribute__((always_inline)) Acc sum_in_order(std::int64_t n, const F& f) {
  constexpr int width = 64 / static_cast<int>(sizeof(Acc));
  typedef Acc Vector __attribute__((vector_size(64)));
  Vector even = {};
  Vector odd = {};
  std::int64_t first = 0;
  for (; first + 2 * width <= n; first += 2 * width) {
    Acc value[2 * width];
#pragma omp simd
    for (int lane = 0; lane < 2 * width; ++lane) value[lane] = static_cast<Acc>(f(first + lane));
    Vector part;
    __builtin_memcpy(&part, value, sizeof part);
    even += part;
    __builtin_memcpy(&part, value + width, sizeof part);
    odd += part;
  }
  even += odd;
  Acc s[16] = {};
  __builtin_memcpy(s, &even, sizeof even);
  for (; first < n; first += width) {
    const int rest = n - first < width ? static_cast<int>(n - first) : width;
#pragma omp simd
    for (int lane = 0; lane < rest; ++lane) s[lane] += static_cast<Acc>(f(first + lane));
  }
  return (((s[0] + s[8]) + (s[4] + s[12])) + ((s[2] + s[10]) + (s[6] + s[14]))) +
         (((s[1] + s[9]) + (s[5] + s[13])) + ((s[3] + s[11]) + (s[7] + s[15])));
}

}  // namespace detail

/// Sum of f(i) over i in [0, n) in type Acc; every lane receives the sum. The order of additions
/// depends only on n, and on devices also on the team's size. On hosts it does not depend on the
/// width of the processor's vectors.
template <class Acc, class Member, class F>
KOKKOS_FORCEINLINE_FUNCTION Acc sum_lanes([[maybe_unused]] const Member& team, std::int64_t n,
                                          const F& f) {
  if constexpr (std::is_same_v<Member, HostTeam>) {
    return detail::sum_in_order<Acc>(n, f);
  } else {
    Acc sum = 0;
    Kokkos::parallel_reduce(
        Kokkos::TeamVectorRange(team, n),
        [&](const std::int64_t i, Acc& partial) { partial += static_cast<Acc>(f(i)); }, sum);
    return sum;
  }
}

namespace detail {

/// Kokkos::Max with the initial value −infinity instead of the lowest finite value.
template <class Acc>
struct Max : Kokkos::Max<Acc> {
  using reducer = Max;
  using Kokkos::Max<Acc>::Max;
  KOKKOS_INLINE_FUNCTION void init(Acc& partial) const { partial = -infinity<Acc>; }
};

}  // namespace detail

/// Largest f(i) over i in [0, n) that is not a NaN, for every lane; −infinity if there is none.
template <class Acc, class Member, class F>
KOKKOS_FORCEINLINE_FUNCTION Acc max_lanes([[maybe_unused]] const Member& team, std::int64_t n,
                                          const F& f) {
  Acc largest = -infinity<Acc>;
  if constexpr (std::is_same_v<Member, HostTeam>) {
#pragma omp simd reduction(max : largest)
    for (std::int64_t i = 0; i < n; ++i) {
      const Acc value = static_cast<Acc>(f(i));
      largest = value > largest ? value : largest;
    }
  } else {
    Kokkos::parallel_reduce(
        Kokkos::TeamVectorRange(team, n),
        [&](const std::int64_t i, Acc& partial) {
          const Acc value = static_cast<Acc>(f(i));
          if (value > partial) partial = value;
        },
        detail::Max<Acc>(largest));
  }
  return largest;
}

/// Calls f once in the team. Only after team.team_barrier() may other lanes read data that f wrote.
template <class Member, class F>
KOKKOS_FORCEINLINE_FUNCTION void once([[maybe_unused]] const Member& team, const F& f) {
  if constexpr (std::is_same_v<Member, HostTeam>) {
    f();
  } else {
    Kokkos::single(Kokkos::PerTeam(team), f);
  }
}

namespace detail {

/// Functor that Kokkos calls for each row: with the row's index on hosts, with the row's team on
/// devices. It is a class, because nvcc does not accept KOKKOS_LAMBDA within `if constexpr`.
template <class F, class Member = Team>
struct RowBody {
  F f;

  KOKKOS_FORCEINLINE_FUNCTION void operator()(const std::int64_t row) const requires(exec_on_host) {
    f(Member{}, row);
  }
  KOKKOS_FORCEINLINE_FUNCTION void operator()(const Member& team) const requires(!exec_on_host) {
    f(team, static_cast<std::int64_t>(team.league_rank()));
  }
};

}  // namespace detail

/// Number of threads of a row's team on devices. Kokkos would choose the number from a kernel's use
/// of registers; a fixed number gives the sums of a row the same order in all kernels.
inline int row_threads(const Exec& exec) {
  if (as_on_device) return exec.concurrency() > 1 ? 2 : 1;
  return 128;
}

/// Launches f(team, row) for every row in [0, rows), asynchronously. `label` is
/// "kernels/<function>". A KOKKOS_LAMBDA f has the parameters `const Team&` and `std::int64_t`.
template <class F>
void for_rows(const char* label, const Exec& exec, std::int64_t rows, const F& f) {
  if (rows == 0) return;
  if constexpr (exec_on_host) {
    Kokkos::parallel_for(label, HostPolicy(exec, 0, rows), detail::RowBody<F>{f});
  } else {
    Kokkos::parallel_for(label, DevicePolicy(exec, static_cast<int>(rows), row_threads(exec)),
                         detail::RowBody<F>{f});
  }
}

/// Number of elements of a long array per team: 16 KiB of fp32, which fit into a first-level cache.
inline constexpr std::int64_t chunk_size = 4096;

inline constexpr std::int64_t chunks_of(std::int64_t n) {
  return (n + chunk_size - 1) / chunk_size;
}

namespace detail {

template <class F>
struct ChunkBody {
  F f;
  std::int64_t n;

  KOKKOS_FORCEINLINE_FUNCTION void operator()(const Team& team, std::int64_t chunk) const {
    const std::int64_t first = chunk * chunk_size;
    f(team, first, n - first < chunk_size ? n - first : chunk_size);
  }
};

}  // namespace detail

/// Launches f(team, first, count) for the parts [first, first + count) of [0, n), asynchronously.
/// Each part has chunk_size elements, except that the last part may have fewer. If f is a
/// KOKKOS_LAMBDA, its parameters are `const Team&`, `std::int64_t` and `std::int64_t`.
template <class F>
void for_chunks(const char* label, const Exec& exec, std::int64_t n, const F& f) {
  for_rows(label, exec, chunks_of(n), detail::ChunkBody<F>{f, n});
}

}  // namespace trireme::kernels
