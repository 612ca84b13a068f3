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

/// State of the report about a hang, a death or an error, shared by the processes of a node.
enum class Verdict : std::uint32_t {
  none,
  claimed,   ///< one process is writing the report
  reported,  ///< the report is written: all processes end
  aborting,  ///< an error with its own message ends the job: there is no report
};

/// The file of one node, mapped by all ranks of the node. It contains each rank's state, and a lock
/// that the rank holds while it lives. When a rank dies, its lock passes to waiters (robust
/// futexes) before a launcher can notice the death.
class NodeFile {
 public:
  enum class Lock { held, released, died };

  /// Creates the file. One rank of the node calls it, before any rank maps the file.
  static void create(const std::string& path, int ranks);
  /// Maps the file. `mine`: index of this process among the `ranks` ranks of the node.
  NodeFile(const std::string& path, int ranks, int mine);
  ~NodeFile();
  NodeFile(const NodeFile&) = delete;
  NodeFile& operator=(const NodeFile&) = delete;

  /// Acquire and release this process's lock. Call them from the main thread.
  void enter();
  void leave();

  int ranks() const { return ranks_; }
  int mine() const { return mine_; }
  SharedState& state(int i);
  /// Waits up to `limit` until the owner of lock `i` dies or leaves; otherwise Lock::held.
  Lock watch(int i, std::chrono::milliseconds limit);

  std::atomic<Verdict>& verdict();
  /// Time of the node's clock at the last check by one of its watchdogs. A node whose time no
  /// longer changes is silent.
  std::atomic<std::int64_t>& clock();
  /// Writes the mapping to the file, so that other nodes can read it.
  void publish();

  struct Snapshot {
    std::int64_t clock = 0;
    std::vector<RankState> ranks;
  };
  /// Reads another node's file. The snapshot is empty if the file cannot be read.
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

/// A claim that one rank of each node can win. If several ranks fail, the winner prints its error.
/// Construction and destruction are collective on MPI_COMM_WORLD.
class NodeClaim {
 public:
  NodeClaim();
  ~NodeClaim();
  NodeClaim(const NodeClaim&) = delete;
  NodeClaim& operator=(const NodeClaim&) = delete;

  /// True on the first rank of the node that calls this function, false on the others. Does not
  /// communicate. Always true if MPI has no shared memory.
  bool win();

 private:
  MPI_Comm node_ = MPI_COMM_NULL;
  MPI_Win window_ = MPI_WIN_NULL;
  int* claimed_ = nullptr;
};

}  // namespace trireme::grid
