#pragma once

#include <trireme/grid/heartbeat.hpp>

#include <mpi.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace trireme::grid {

/// The decision that a node's processes share: who reports, and whether to end.
enum class Verdict : std::uint32_t {
  none,
  claimed,   ///< One process is writing the report.
  reported,  ///< The report is written: all processes end.
  aborting,  ///< An error that has its own message ends the job: no report.
};

/// The file of one node, mapped by all its ranks. It holds each rank's state and a lock that the
/// rank holds while it lives. When a process dies, the kernel hands its locks to waiters (robust
/// futexes) before it releases its memory and closes its files, which is before a launcher can
/// notice the death and kill the job. A pidfd becomes readable only later.
class NodeFile {
 public:
  enum class Lock { held, released, died };

  /// Creates the file for `ranks` ranks. One rank calls it, before other ranks open the file.
  static void create(const std::string& path, int ranks);
  /// Maps the file. `mine` is this process's index in it. Errors name the path.
  NodeFile(const std::string& path, int ranks, int mine);
  ~NodeFile();
  NodeFile(const NodeFile&) = delete;
  NodeFile& operator=(const NodeFile&) = delete;

  /// Acquire and release this process's lock. The calling thread must live as long as the process:
  /// call them from the main thread.
  void enter();
  void leave();

  int ranks() const { return ranks_; }
  int mine() const { return mine_; }
  SharedState& state(int i);
  /// Waits up to `limit` until the owner of lock `i` dies or leaves.
  Lock watch(int i, std::chrono::milliseconds limit);

  std::atomic<Verdict>& verdict();
  /// The node's clock when one of its watchdogs last checked. A node whose clock stops is dead.
  std::atomic<std::int64_t>& clock();
  /// Writes the mapping to the file, so that other nodes can read it.
  void publish();

  struct Snapshot {
    std::int64_t clock = 0;
    std::vector<RankState> ranks;
  };
  /// Reads another node's file. The result is empty if it cannot be read.
  static Snapshot read(const std::string& path, int ranks);

 private:
  struct Header;
  struct Slot;
  static std::size_t bytes(int ranks);
  Header& header() const;
  Slot& slot(int i) const;

  int ranks_;
  int mine_;
  void* memory_ = nullptr;
};

/// A claim that one rank of each node can win, in memory that the node's ranks share. If several
/// ranks fail, the winner prints its error. Construction and destruction are collective on
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
