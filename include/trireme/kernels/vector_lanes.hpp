#pragma once

#include <trireme/kernels/lanes.hpp>

#include <algorithm>
#include <cstdint>

/// Lanes for short rows. On devices, one thread of a team computes a row with its vector lanes (a
/// warp). Code written for a Team (lanes.hpp, packs.hpp) also works on such rows.
namespace trireme::kernels {

template <class Member>
struct VectorLanes {
  const Member& team;
};

template <class Member, class F>
KOKKOS_FORCEINLINE_FUNCTION void for_lanes(const VectorLanes<Member>& lanes, std::int64_t n,
                                           const F& f) {
  Kokkos::parallel_for(Kokkos::ThreadVectorRange(lanes.team, n), f);
}

template <class Acc, class Member, class F>
KOKKOS_FORCEINLINE_FUNCTION Acc sum_lanes(const VectorLanes<Member>& lanes, std::int64_t n,
                                          const F& f) {
  Acc sum = 0;
  Kokkos::parallel_reduce(
      Kokkos::ThreadVectorRange(lanes.team, n),
      [&](const std::int64_t i, Acc& partial) { partial += static_cast<Acc>(f(i)); }, sum);
  return sum;
}

template <class Member, class F>
KOKKOS_FORCEINLINE_FUNCTION void once(const VectorLanes<Member>& lanes, const F& f) {
  Kokkos::single(Kokkos::PerThread(lanes.team), f);
}

namespace detail {

/// Calls f(lanes, row, part) for part `part` of row `row`; each row has `parts` parts.
template <class F>
struct PartBody {
  F f;
  std::int64_t rows, parts;

  KOKKOS_FUNCTION void operator()(const DevicePolicy::member_type& team) const {
    const std::int64_t i =
        static_cast<std::int64_t>(team.league_rank()) * team.team_size() + team.team_rank();
    if (i < rows * parts) f(VectorLanes<DevicePolicy::member_type>{team}, i / parts, i % parts);
  }
};

/// Number of threads of a team; each thread has the lanes of a vector.
inline int part_threads([[maybe_unused]] const Exec& exec) {
  if (as_on_device) return exec.concurrency() > 1 ? 2 : 1;
  return exec_on_host ? 1 : 4;
}

/// for_parts on devices; tests also run it on hosts.
template <class F>
void launch_parts(const char* label, const Exec& exec, std::int64_t rows, std::int64_t parts,
                  const F& f) {
  const int vector = std::min(32, DevicePolicy::vector_length_max());
  const int threads = part_threads(exec);
  const std::int64_t teams = (rows * parts + threads - 1) / threads;
  Kokkos::parallel_for(label, DevicePolicy(exec, static_cast<int>(teams), threads, vector),
                       PartBody<F>{f, rows, parts});
}

template <class F>
struct RowOfParts {
  F f;
  std::int64_t parts;

  KOKKOS_FORCEINLINE_FUNCTION void operator()(const HostTeam& team, std::int64_t row) const {
    for (std::int64_t part = 0; part < parts; ++part) f(team, row, part);
  }
};

}  // namespace detail

/// Launches f(lanes, row, part) for every part of every row on `exec`; asynchronous. f is a class
/// with `template <class Lanes> KOKKOS_FUNCTION void operator()(const Lanes&, std::int64_t row,
/// std::int64_t part) const`; its calls must be independent of each other.
template <class F>
void for_parts(const char* label, const Exec& exec, std::int64_t rows, std::int64_t parts,
               const F& f) {
  if (rows * parts == 0) return;
  if constexpr (exec_on_host)
    for_rows(label, exec, rows, detail::RowOfParts<F>{f, parts});
  else
    detail::launch_parts(label, exec, rows, parts, f);
}

}  // namespace trireme::kernels
