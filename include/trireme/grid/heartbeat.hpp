#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

namespace trireme::grid {

/// What a rank does when it does not wait: "forward", "checkpoint". Numbers below 0 do not apply.
struct Activity {
  std::string_view name;
  std::int64_t step = -1;
  int stage = -1;
  int micro = -1;
};

/// What a rank waits for: a verb on a communicator. `number` counts the communicator's collectives;
/// for a send or receive it is the channel, and `peer` the world rank at the other end.
struct Wait {
  std::string_view verb;
  std::string_view what;
  std::string_view communicator;
  std::int64_t number = 0;
  int peer = -1;
};

/// What a rank last said of itself, as it lies in memory that other processes read: long words are
/// cut.
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

/// A RankState that one thread writes and others read, in this process or another one, without
/// locks: a reader that met the writer tries again (Boehm 2012, "Can seqlocks get along with
/// programming language memory models?").
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

/// Nanoseconds of the clock in RankState::since: a few milliseconds coarse, a few nanoseconds
/// cheap.
std::int64_t heartbeat_clock();

/// This process's word about itself. Publishing costs some ten nanoseconds and no system call; it
/// is progress to the watchdog. For one thread, MPI's.
class Heartbeat {
 public:
  /// Everything published from now on goes to `shared`; null, as it is at first: nowhere.
  static void listen(SharedState* shared, int rank);
  static void end();

  static void publish(const Activity& activity);

  /// From construction to destruction the rank waits. What it did before goes on behind it.
  class Waiting {
   public:
    explicit Waiting(const Wait& wait);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
  };
};

}  // namespace trireme::grid
