#pragma once

#include <trireme/tensor/views.hpp>

#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

namespace trireme::grid {

/// Whether this build's kernels use several threads per rank.
#if defined(KOKKOS_ENABLE_OPENMP)
inline constexpr bool ranks_have_threads = std::is_same_v<Exec, Kokkos::OpenMP>;
#else
inline constexpr bool ranks_have_threads = false;
#endif

/// The cores that this process may use: character i is '1' if core i is one of them.
std::string bound_cores();

/// Threads of rank `mine` among the ranks of its node, given the bound_cores of each. Ranks with
/// equal sets share their cores evenly; ranks that the launcher does not bind have equal sets. At
/// least 1.
int threads_among(const std::vector<std::string>& cores, std::size_t mine);

/// Threads of this rank; 0 if OMP_NUM_THREADS or KOKKOS_NUM_THREADS is set or ranks have no
/// threads. Collective over MPI_COMM_WORLD.
int threads_of_rank();

}  // namespace trireme::grid
