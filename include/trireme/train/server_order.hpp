#pragma once

#include <trireme/deck/enums.hpp>

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace trireme::train {

/// An action of all servers, in the same order on each: send a worker the weights for a step, or
/// update the weights.
struct ServerEvent {
  enum class Kind : std::uint8_t { fetch, update };
  Kind kind = Kind::fetch;
  int worker = -1;  ///< −1: an update with the gradients of all workers
  std::int64_t step = 0;
  bool operator==(const ServerEvent&) const = default;
};

/// Chooses the order of events from the arrivals of the workers' messages, or repeats a given
/// order. Stale synchronous parallel (Ho et al. 2013, "More Effective Distributed ML via a Stale
/// Synchronous Parallel Parameter Server"): the weights for step c include all updates up to step c
/// − 1 − staleness, and any later updates that have been applied.
class ServerOrder {
 public:
  ServerOrder(int workers, std::int64_t staleness, ServerUpdates updates);

  /// Continues after step `step`, whose updates are all applied.
  void reset(std::int64_t step);
  /// Repeats these events from now on, except events of steps up to complete().
  void replay(std::vector<ServerEvent> events);

  /// Records that a worker waits for the weights of `step`, or has sent its gradients of `step`.
  void asks(int worker, std::int64_t step);
  void pushed(int worker, std::int64_t step);

  /// The next event, if the messages that it needs have arrived. Error if a replayed record does
  /// not fit the run, or if its next event is of a step after `end`.
  std::optional<ServerEvent> next(std::int64_t end) const;
  /// Records that an event was executed.
  void apply(const ServerEvent& event);

  /// The last step whose updates are all applied.
  std::int64_t complete() const;
  /// Number of updates since the run began; with updates = "push", one per step and worker.
  std::int64_t updates() const;
  /// Number of steps before the fetch's step whose updates are not all in the fetched weights.
  std::int64_t lacks(const ServerEvent& fetch) const { return fetch.step - 1 - complete(); }

 private:
  struct Pushed {
    int worker;
    std::int64_t step;
  };
  bool is_possible(const ServerEvent& event) const;
  std::optional<ServerEvent> next_arrived() const;

  std::int64_t staleness_;
  bool by_push_;
  std::vector<std::int64_t> asked_;    ///< step of each worker's waiting request; 0: none
  std::vector<std::int64_t> sent_;     ///< last step whose gradients each worker has sent
  std::vector<std::int64_t> applied_;  ///< last step of each worker whose gradients are applied
  std::deque<int> waiting_;            ///< workers in the order of their requests
  std::deque<Pushed> pushes_;          ///< unapplied gradients, in order of arrival
  std::optional<std::deque<ServerEvent>> replayed_;
};

}  // namespace trireme::train
