// The state that a rank publishes, in memory that other processes map. A sequence number makes
// reads consistent without locks.
#include <trireme/grid/heartbeat.hpp>

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace trireme::grid {
namespace {

struct Current {
  SharedState* shared = nullptr;
  RankState state;
};

Current& current() {
  static Current instance;
  return instance;
}

/// Copies a name, truncated if necessary, and fills the rest of the field with zeros.
template <std::size_t N>
void set(char (&field)[N], std::string_view word) {
  const std::size_t length = std::min(word.size(), N - 1);
  std::memcpy(field, word.data(), length);
  std::memset(field + length, 0, N - length);
}

void beat(Current& c) {
  c.state.since = heartbeat_clock();
  c.shared->write(c.state);
}

}  // namespace

void SharedState::write(const RankState& state) {
  std::uint64_t copy[words];
  std::memcpy(copy, &state, sizeof state);
  const std::uint64_t sequence = sequence_.load(std::memory_order_relaxed);
  sequence_.store(sequence + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  for (std::size_t i = 0; i < words; ++i) state_[i].store(copy[i], std::memory_order_relaxed);
  sequence_.store(sequence + 2, std::memory_order_release);
}

RankState SharedState::read() const {
  std::uint64_t copy[words];
  std::uint64_t half_written = 0;
  int sightings = 0;
  while (true) {
    const std::uint64_t before = sequence_.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < words; ++i) copy[i] = state_[i].load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (before % 2 == 0) {
      if (sequence_.load(std::memory_order_relaxed) == before) break;
      continue;
    }
    // A writer that was preempted during a write gets a second to finish. A writer that was killed
    // or stopped never finishes; its partial state is then returned.
    sightings = before == half_written ? sightings + 1 : 0;
    half_written = before;
    if (sightings == 10'000) break;
    if (sightings > 100) usleep(100);
  }
  RankState state;
  std::memcpy(&state, copy, sizeof state);
  return state;
}

std::int64_t heartbeat_clock() {
#if defined(CLOCK_MONOTONIC_COARSE)
  constexpr clockid_t clock = CLOCK_MONOTONIC_COARSE;
#else
  constexpr clockid_t clock = CLOCK_MONOTONIC;
#endif
  timespec now;
  clock_gettime(clock, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void Heartbeat::listen(SharedState* shared, int rank) {
  Current& c = current();
  c.shared = shared;
  c.state = RankState();
  c.state.life = RankState::alive;
  c.state.rank = rank;
  c.state.pid = static_cast<std::int32_t>(getpid());
  if (shared != nullptr) beat(c);
}

void Heartbeat::end() {
  Current& c = current();
  if (c.shared == nullptr) return;
  c.state.life = RankState::ended;
  beat(c);
  c.shared = nullptr;
}

void Heartbeat::publish(const Activity& activity) {
  Current& c = current();
  if (c.shared == nullptr) return;
  set(c.state.activity, activity.name);
  c.state.step = activity.step;
  c.state.stage = activity.stage;
  c.state.micro = activity.micro;
  beat(c);
}

Heartbeat::Waiting::Waiting(const Wait& wait) {
  Current& c = current();
  if (c.shared == nullptr) return;
  set(c.state.verb, wait.verb);
  set(c.state.what, wait.what);
  set(c.state.communicator, wait.communicator);
  c.state.number = wait.number;
  c.state.peer = wait.peer;
  c.state.waits = 1;
  beat(c);
}

Heartbeat::Waiting::~Waiting() {
  Current& c = current();
  if (c.shared == nullptr) return;
  c.state.waits = 0;
  beat(c);
}

}  // namespace trireme::grid
