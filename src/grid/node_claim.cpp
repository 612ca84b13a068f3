#include <trireme/grid/node_claim.hpp>

#include <atomic>

namespace trireme::grid {

NodeClaim::NodeClaim() {
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node_);
  MPI_Comm_set_errhandler(node_, MPI_ERRORS_RETURN);
  int rank = 0;
  MPI_Comm_rank(node_, &rank);
  const MPI_Aint bytes = rank == 0 ? sizeof(int) : 0;
  void* own = nullptr;
  if (MPI_Win_allocate_shared(bytes, sizeof(int), MPI_INFO_NULL, node_, &own, &window_) !=
      MPI_SUCCESS)
    return;
  MPI_Aint size = 0;
  int unit = 0;
  MPI_Win_shared_query(window_, 0, &size, &unit, &claimed_);
  if (rank == 0) std::atomic_ref(*claimed_).store(0);
  MPI_Barrier(node_);
}

NodeClaim::~NodeClaim() {
  if (window_ != MPI_WIN_NULL) MPI_Win_free(&window_);
  MPI_Comm_free(&node_);
}

bool NodeClaim::win() {
  return claimed_ == nullptr || std::atomic_ref(*claimed_).exchange(1) == 0;
}

}  // namespace trireme::grid
