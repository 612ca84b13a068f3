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

/// Number of threads, at least 1, of rank `mine` of a node. `cores`: bound_cores() of each rank of
/// the node. Ranks with the same set of cores share it evenly.
int threads_among(const std::vector<std::string>& cores, std::size_t mine);

/// Number of threads of this rank; 0 if OMP_NUM_THREADS or KOKKOS_NUM_THREADS is set or if this
/// build's kernels have one thread per rank. Collective over MPI_COMM_WORLD.
int threads_of_rank();

}  // namespace trireme::grid
