#pragma once

#include <mpi.h>

namespace trireme::grid {

/// A claim that one rank of each node can win, in memory that the node's ranks share. For errors of
/// several ranks, of which one is printed. Construction and destruction are collective on
/// MPI_COMM_WORLD.
class NodeClaim {
 public:
  NodeClaim();
  ~NodeClaim();
  NodeClaim(const NodeClaim&) = delete;
  NodeClaim& operator=(const NodeClaim&) = delete;

  /// True for the first rank of the node that asks. Does not communicate. Always true where MPI
  /// has no shared memory.
  bool win();

 private:
  MPI_Comm node_ = MPI_COMM_NULL;
  MPI_Win window_ = MPI_WIN_NULL;
  int* claimed_ = nullptr;
};

}  // namespace trireme::grid
