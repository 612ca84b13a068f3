#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

namespace trireme::grid {

/// A rank's activity, such as "forward" or "checkpoint". A number that does not apply is negative.
struct Activity {
  std::string_view name;
  std::int64_t step = -1;
  int stage = -1;
  int micro = -1;
};

/// The verb for which a rank waits, and the verb's communicator. For a collective, `number` is its
/// number on the communicator. For a send or receive, `number` is the channel, and `peer` is the
/// world rank of the other end.
struct Wait {
  std::string_view verb;
  std::string_view what;
  std::string_view communicator;
  std::int64_t number = 0;
  int peer = -1;
};

/// A rank's last published state, in the layout that other processes read.
struct RankState {
  enum Life : std::int32_t { absent, alive, ended };
  std::int32_t life = absent;
  std::int32_t rank = -1;
  std::int32_t pid = 0;
  std::int32_t waits = 0;
  std::int64_t since = 0;  ///< time of the last publication, by heartbeat_clock()
  std::int64_t step = -1;
  std::int32_t stage = -1;
  std::int32_t micro = -1;
  std::int64_t number = 0;
  std::int32_t peer = -1;
  std::int32_t unused = 0;
  char activity[32] = {};
  char verb[16] = {};
  char what[40] = {};
  char communicator[16] = {};
};

/// A RankState that one thread writes and others read without locks, in this process or another. A
/// reader that overlaps a write retries (Boehm 2012, "Can seqlocks get along with programming
/// language memory models?").
class SharedState {
 public:
  void write(const RankState& state);
  RankState read() const;

 private:
  static constexpr std::size_t words = sizeof(RankState) / sizeof(std::uint64_t);
  static_assert(sizeof(RankState) % sizeof(std::uint64_t) == 0);
  std::atomic<std::uint64_t> sequence_{0};
  std::atomic<std::uint64_t> state_[words];
};

/// Time of the node's monotonic clock, in nanoseconds, with a resolution of a few milliseconds.
std::int64_t heartbeat_clock();

/// Publishes this process's state. The watchdog counts each call as progress. Only the thread that
/// calls MPI may call these functions.
class Heartbeat {
 public:
  /// Directs publications to `shared`, and publishes that `rank` is alive. Null: discards them.
  static void listen(SharedState* shared, int rank);
  static void end();

  static void publish(const Activity& activity);

  /// The rank waits from construction to destruction of this object.
  class Waiting {
   public:
    explicit Waiting(const Wait& wait);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
  };
};

}  // namespace trireme::grid
