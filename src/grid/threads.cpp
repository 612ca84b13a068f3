#include <trireme/grid/threads.hpp>

#include <trireme/base/check.hpp>

#include <mpi.h>

#include <sched.h>

#include <algorithm>
#include <cstdlib>

namespace trireme::grid {
namespace {

constexpr std::size_t most_cores = 8192;

struct CpuSet {
  cpu_set_t* set = CPU_ALLOC(most_cores);
  ~CpuSet() { CPU_FREE(set); }
};

/// The bound cores of all ranks of this node. Sets `mine` to this rank's index among them.
std::vector<std::string> cores_of_node(std::size_t& mine) {
  MPI_Comm node = MPI_COMM_NULL;
  int rank = 0;
  int ranks = 0;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  MPI_Comm_rank(node, &rank);
  MPI_Comm_size(node, &ranks);
  std::string cores = bound_cores();
  cores.resize(most_cores, '0');
  std::string all(most_cores * static_cast<std::size_t>(ranks), '0');
  constexpr auto length = static_cast<int>(most_cores);
  MPI_Allgather(cores.data(), length, MPI_CHAR, all.data(), length, MPI_CHAR, node);
  MPI_Comm_free(&node);
  std::vector<std::string> result;
  for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r)
    result.push_back(all.substr(r * most_cores, most_cores));
  mine = static_cast<std::size_t>(rank);
  return result;
}

}  // namespace

std::string bound_cores() {
  const CpuSet cpus;
  const std::size_t bytes = CPU_ALLOC_SIZE(most_cores);
  CPU_ZERO_S(bytes, cpus.set);
  check(sched_getaffinity(0, bytes, cpus.set) == 0,
        "cannot determine the cores of this process (sched_getaffinity failed)");
  std::string cores(most_cores, '0');
  for (std::size_t i = 0; i < most_cores; ++i)
    if (CPU_ISSET_S(i, bytes, cpus.set)) cores[i] = '1';
  cores.resize(cores.find_last_of('1') + 1);
  return cores;
}

int threads_among(const std::vector<std::string>& cores, std::size_t mine) {
  const auto own = std::count(cores[mine].begin(), cores[mine].end(), '1');
  const auto sharing = std::count(cores.begin(), cores.end(), cores[mine]);
  return static_cast<int>(std::max<std::ptrdiff_t>(1, own / sharing));
}

int threads_of_rank() {
  if (!ranks_have_threads || std::getenv("OMP_NUM_THREADS") || std::getenv("KOKKOS_NUM_THREADS"))
    return 0;
  std::size_t mine = 0;
  const std::vector<std::string> cores = cores_of_node(mine);
  return threads_among(cores, mine);
}

}  // namespace trireme::grid
