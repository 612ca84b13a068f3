#pragma once

#include <trireme/tensor/views.hpp>

#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

namespace trireme::grid {

/// Whether kernels of this build run on several threads of a rank.
#if defined(KOKKOS_ENABLE_OPENMP)
inline constexpr bool ranks_have_threads = std::is_same_v<Exec, Kokkos::OpenMP>;
#else
inline constexpr bool ranks_have_threads = false;
#endif

/// Cores that this process may run on: character i is '1' where core i is one of them.
std::string bound_cores();

/// Threads of rank `mine` among the ranks of its node, whose bound_cores are given: its cores,
/// divided among all ranks that are bound to the same ones, as ranks are that no launcher binds. At
/// least 1.
int threads_among(const std::vector<std::string>& cores, std::size_t mine);

/// That of this rank. Collective over MPI_COMM_WORLD. 0 where OMP_NUM_THREADS or KOKKOS_NUM_THREADS
/// says how many, or ranks have no threads.
int threads_of_rank();

}  // namespace trireme::grid
