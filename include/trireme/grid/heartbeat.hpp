#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

namespace trireme::grid {

/// A rank's activity while it does not wait: "forward", "checkpoint". Negative numbers do not
/// apply.
struct Activity {
  std::string_view name;
  std::int64_t step = -1;
  int stage = -1;
  int micro = -1;
};

/// The verb and communicator that a rank waits for. `number` counts the communicator's collectives;
/// for a send or receive it is the channel, and `peer` is the world rank of the other end.
struct Wait {
  std::string_view verb;
  std::string_view what;
  std::string_view communicator;
  std::int64_t number = 0;
  int peer = -1;
};

/// A rank's last published state, in the layout that other processes read. Long names are
/// truncated.
struct RankState {
  enum Life : std::int32_t { absent, alive, ended };
  std::int32_t life = absent;
  std::int32_t rank = -1;
  std::int32_t pid = 0;
  std::int32_t waits = 0;
  std::int64_t since = 0;  ///< Nanoseconds of the node's monotonic clock.
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

/// The clock of RankState::since, in nanoseconds. Its resolution is a few milliseconds; a call
/// takes a few nanoseconds.
std::int64_t heartbeat_clock();

/// Publishes this process's state. A call costs about ten nanoseconds and no system call. The
/// watchdog counts it as progress. Only the thread that calls MPI may use it.
class Heartbeat {
 public:
  /// Directs publications to `shared`. Null, the initial value, discards them.
  static void listen(SharedState* shared, int rank);
  static void end();

  static void publish(const Activity& activity);

  /// The rank waits from construction to destruction; then its previous activity continues.
  class Waiting {
   public:
    explicit Waiting(const Wait& wait);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
  };
};

}  // namespace trireme::grid
