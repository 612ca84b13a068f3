#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme::testing {

/// Events known to an actor: for each actor, the number of its last known event (vector clocks,
/// Mattern 1989).
class Clock {
 public:
  explicit Clock(std::size_t actors = 0) : known_(actors, 0) {}

  std::int32_t operator[](int actor) const { return known_[static_cast<std::size_t>(actor)]; }
  void learn(int actor, std::int32_t event) {
    std::int32_t& known = known_[static_cast<std::size_t>(actor)];
    known = std::max(known, event);
  }
  void learn(const Clock& other) {
    for (std::size_t i = 0; i < known_.size(); ++i)
      known_[i] = std::max(known_[i], other.known_[i]);
  }
  void keep_common(const Clock& other) {
    for (std::size_t i = 0; i < known_.size(); ++i)
      known_[i] = std::min(known_[i], other.known_[i]);
  }
  void forget() { std::fill(known_.begin(), known_.end(), 0); }

 private:
  std::vector<std::int32_t> known_;
};

/// Actors of a block: its threads, its warps when they finish products, and its phase barriers when
/// they finish copies. A thread's event is its actions between two synchronisations.
struct Actors {
  static constexpr int most_phases = 64;
  int threads = 0;
  int warp(int thread) const { return threads + thread / 32; }
  int phases(int i) const { return threads + threads / 32 + i; }
  std::size_t count() const {
    return static_cast<std::size_t>(threads + threads / 32 + most_phases);
  }
  bool is_thread(int actor) const { return actor < threads; }
  bool is_warp(int actor) const { return !is_thread(actor) && actor < phases(0); }
};

/// The threads of a block: their known events, and when they published their stores to products.
class ThreadOrder {
 public:
  explicit ThreadOrder(int threads)
      : actors{threads},
        clocks_(static_cast<std::size_t>(threads), Clock(Actors{threads}.count())),
        published_(clocks_.size()) {
    for (int t = 0; t < threads; ++t) of(t).learn(t, 1);
  }

  const Actors actors;

  Clock& of(int thread) { return clocks_[static_cast<std::size_t>(thread)]; }
  const Clock& of(int thread) const { return clocks_[static_cast<std::size_t>(thread)]; }
  std::int32_t now(int thread) const { return of(thread)[thread]; }
  /// Later actions of the thread are not part of this clock.
  void tell(int thread, Clock& to) {
    to.learn(of(thread));
    next(thread);
  }
  void publish(int thread) {
    published_[static_cast<std::size_t>(thread)].push_back(now(thread));
    next(thread);
  }
  /// Whether `clock` includes the thread's publication of stores made in `event`.
  bool knows_publication(const Clock& clock, int thread, std::int32_t event) const {
    const auto& all = published_[static_cast<std::size_t>(thread)];
    const auto first = std::lower_bound(all.begin(), all.end(), event);
    return first != all.end() && clock[thread] > *first;
  }

 private:
  void next(int thread) { of(thread).learn(thread, now(thread) + 1); }

  std::vector<Clock> clocks_;
  std::vector<std::vector<std::int32_t>> published_;
};

}  // namespace trireme::testing
