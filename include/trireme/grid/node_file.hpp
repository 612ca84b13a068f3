#pragma once

#include <trireme/grid/heartbeat.hpp>

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace trireme::grid {

/// What the processes of a node have agreed on: who reports, and whether it is time to end.
enum class Verdict : std::uint32_t {
  none,
  claimed,   ///< One is writing the report.
  reported,  ///< The report is out: all end.
  aborting,  ///< An error that has its own message ends the job: no report.
};

/// The file of one node, mapped by all its ranks: what each does, and a lock that each holds while
/// it lives. The kernel gives a dead process's locks to who waits for them before it takes down its
/// memory and closes its files (robust futexes), which is before a launcher can notice the death
/// and kill everybody; a pidfd tells only after that.
class NodeFile {
 public:
  enum class Lock { held, released, died };

  /// Makes the file, for `ranks` ranks; on one of them, before the others open it.
  static void create(const std::string& path, int ranks);
  /// Maps the file; `mine` is this process's place in it. Errors name the path.
  NodeFile(const std::string& path, int ranks, int mine);
  ~NodeFile();
  NodeFile(const NodeFile&) = delete;
  NodeFile& operator=(const NodeFile&) = delete;

  /// Takes and gives back this process's lock. In a thread that lives as long as the process: its
  /// main thread.
  void enter();
  void leave();

  int ranks() const { return ranks_; }
  int mine() const { return mine_; }
  SharedState& state(int i);
  /// Waits up to `limit` until the owner of lock `i` dies or leaves.
  Lock watch(int i, std::chrono::milliseconds limit);

  std::atomic<Verdict>& verdict();
  /// The node's clock when one of its watchdogs last looked: a node whose clock stands is dead.
  std::atomic<std::int64_t>& clock();
  /// Puts what is mapped where other nodes can read it.
  void publish();

  struct Snapshot {
    std::int64_t clock = 0;
    std::vector<RankState> ranks;
  };
  /// Another node's file; empty where it cannot be read.
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

}  // namespace trireme::grid
