#pragma once

#include <trireme/base/check.hpp>

#include <cstdint>
#include <map>
#include <vector>

#include "support/clocks.hpp"

/// Barriers of the PTX ISA in shared memory ("mbarrier") and among some threads ("bar.sync",
/// "bar.arrive").
namespace trireme::testing::emulator {

/// A phase ends when all its arrivals and all announced bytes have come. A thread that waits for it
/// then knows the events known to the arriving threads, and that the copies have arrived.
struct Phases {
  int count, pending, actor;
  int first_thread;
  std::int32_t first_event;  // initialising event
  bool published = false;
  std::int64_t bytes = 0;
  std::int32_t ended = 0;  // ended phases
  Clock arriving, known;

  Phases(int count_, int actor_, int thread, ThreadOrder& order)
      : count(count_),
        pending(count_),
        actor(actor_),
        first_thread(thread),
        first_event(order.now(thread)),
        arriving(order.actors.count()),
        known(arriving) {}

  void arrive(int thread, std::uint32_t announced, ThreadOrder& order) {
    check(pending > 0, "thread ", thread, " arrives at a barrier all of whose ", count,
          " arrivals have come");
    bytes += announced;
    --pending;
    order.tell(thread, arriving);
    end_if_complete();
  }
  void complete(std::uint32_t arrived) {
    bytes -= arrived;
    end_if_complete();
  }
  bool has_ended(std::uint32_t parity) const {
    return static_cast<std::uint32_t>(ended % 2) != parity;
  }

 private:
  void end_if_complete() {
    if (pending > 0 || bytes != 0) return;
    ++ended;
    pending = count;
    known = arriving;
    known.learn(actor, ended);
    arriving.forget();
  }
};

/// The phase barriers of a block.
class PhaseTable {
 public:
  void init(std::uint32_t at, int count, int thread, ThreadOrder& order) {
    check(at % 8 == 0, "a barrier at shared address ", at);
    check(count > 0, "a barrier of ", count, " arrivals");
    check(table_.size() < Actors::most_phases, "more than ", Actors::most_phases, " barriers");
    const int actor = order.actors.phases(static_cast<int>(table_.size()));
    check(table_.try_emplace(at, count, actor, thread, order).second, "a second barrier at ", at);
  }
  void publish(int thread) {
    for (auto& [at, phases] : table_) phases.published |= phases.first_thread == thread;
  }
  /// Finds a barrier for a thread, which must know its initialisation.
  Phases& find(std::uint32_t at, int thread, const ThreadOrder& order) {
    const auto found = table_.find(at);
    check(found != table_.end(), "thread ", thread, " uses shared address ", at,
          " as a barrier, which nobody initialised");
    Phases& p = found->second;
    check(order.of(thread)[p.first_thread] >= p.first_event && p.published, "thread ", thread,
          " uses the barrier at ", at, " that thread ", p.first_thread,
          " has not published, or without a barrier between");
    return p;
  }
  Phases& find(std::uint32_t at) { return table_.at(at); }
  /// Called at the end of the block.
  void check_complete() const {
    for (const auto& [at, phases] : table_)
      check(phases.bytes == 0, "the block ends while the barrier at ", at, " waits for ",
            phases.bytes, " bytes");
  }

 private:
  std::map<std::uint32_t, Phases> table_;
};

/// A barrier among some threads.
struct Meeting {
  int threads = 0, arrived = 0;
  std::vector<int> waiting;
  Clock known;

  /// Returns whether this was the last arrival.
  bool arrive(int thread, int of, ThreadOrder& order) {
    check(of % 32 == 0 && of > 0, "a barrier of ", of, " threads, which are not whole warps");
    if (arrived == 0) {
      threads = of;
      known = Clock(order.actors.count());
    }
    check(threads == of, "thread ", thread, " comes to a barrier of ", threads,
          " threads as if of ", of);
    order.tell(thread, known);
    return ++arrived == threads;
  }
};

}  // namespace trireme::testing::emulator
