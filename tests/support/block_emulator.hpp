#pragma once

#include <trireme/base/check.hpp>
#include <trireme/base/narrow.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

#include "support/emulated_memory.hpp"
#include "support/emulated_warp.hpp"
#include "support/fiber.hpp"

/// Runs kernels for blocks of threads (kernels/warp_tiles.hpp) on a host and checks them. Every
/// thread is a fiber, which runs until it needs other threads. A warp's operation is executed when
/// all 32 lanes have reached it; lanes that reach different operations, or never arrive, are an
/// error. Asynchronous copies arrive as late or as early as permitted. Stores for other blocks
/// become visible when they are released or when the block ends.
namespace trireme::testing {

struct EmulatorLaunch {
  int blocks = 1;
  int threads = 32;
  std::uint32_t shared_bytes = 0;
  int resident = 1;           ///< blocks that run concurrently
  bool early_copies = false;  ///< copies arrive when issued, not when they are waited for
  bool backwards = false;     ///< blocks, warps and threads in reverse order
};

struct EmulatorReport {
  std::int64_t bank_conflicts = 0;  ///< accesses to shared memory delayed by others
  std::int64_t operations = 0;      ///< of warps
  WarpCounts most;                  ///< maximum over warps or warpgroups
  std::int64_t products = 0;        ///< of warpgroups
};

class EmulatedBlock;

namespace emulator {

struct Copy {
  std::uint32_t to, bytes;
  const void* from;  // or null: zeros
};

struct Write {
  float* to;
  float values[4];
  int thread;
  std::int64_t epoch;
};

enum class State : std::uint8_t { ready, at_warp, at_barrier, polling, done };

struct Thread {
  Fiber fiber;
  State state = State::ready;
  const unsigned* polled = nullptr;
  unsigned wanted = 0;
  std::deque<std::vector<Copy>> groups;  // the last one is not committed
};

struct BlockState {
  int index;
  EmulatedMemory memory;
  std::vector<Thread> fibers;
  std::vector<WarpRequests> warps;
  std::vector<int> arrived;  // lanes of each warp
  std::vector<WarpCounts> counts;
  std::vector<Write> writes;
  int at_barrier = 0, done = 0;
  std::int64_t epoch = 0;
  unsigned ticket = 0;
  unsigned* ticket_from = nullptr;

  BlockState(int index_, const EmulatorLaunch& launch)
      : index(index_),
        memory(launch.shared_bytes),
        fibers(static_cast<std::size_t>(launch.threads)),
        warps(fibers.size() / 32),
        arrived(fibers.size() / 32, 0),
        counts(fibers.size() / 32) {}

  void publish(int thread, bool all) {
    std::vector<Write> later;
    for (const Write& w : writes)
      if (all || w.thread == thread || w.epoch < epoch)
        std::memcpy(w.to, w.values, sizeof w.values);
      else
        later.push_back(w);
    writes = later;
  }
};

/// The context to which a fiber returns.
struct Scheduler {
  EmulatorLaunch launch;
  EmulatorReport report;
  Fiber home;
  std::exception_ptr error;
};

}  // namespace emulator

/// A Block as used by kernels.
class EmulatedBlock {
 public:
  EmulatedBlock(emulator::Scheduler& scheduler, emulator::BlockState& state, int thread)
      : scheduler_(&scheduler), state_(&state), thread_(thread) {}

  int thread() const { return thread_; }
  int index() const { return state_->index; }
  std::uint32_t shared() const { return 0; }

  void barrier() {
    if (++state_->at_barrier == scheduler_->launch.threads) {
      state_->at_barrier = 0;
      state_->memory.next_epoch();
      ++state_->epoch;
      for (emulator::Thread& f : state_->fibers) f.state = emulator::State::ready;
      return;
    }
    leave(emulator::State::at_barrier);
  }

  bool any(bool x) {
    std::uint32_t word = x ? 1 : 0;
    WarpRequest r = request(WarpOperation::vote);
    r.words = &word;
    together(r);
    return word != 0;
  }
  template <class V>
  V shuffle_xor(V x, int lanes) {
    auto word = __builtin_bit_cast(std::uint32_t, x);
    WarpRequest r = request(WarpOperation::shuffle);
    r.words = &word;
    r.lanes = lanes;
    together(r);
    return __builtin_bit_cast(V, word);
  }
  template <class T>
  void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                    std::uint32_t b1) {
    WarpRequest r = request(std::is_same_v<T, Bf16> ? WarpOperation::multiply_bf16
                                                    : WarpOperation::multiply_fp16);
    r.sums = c;
    r.left = a;
    r.right[0] = b0;
    r.right[1] = b1;
    together(r);
  }
  void load_matrices(std::uint32_t (&r)[4], std::uint32_t from) {
    load(WarpOperation::load_matrices, r, from);
  }
  void load_matrices_transposed(std::uint32_t (&r)[4], std::uint32_t from) {
    load(WarpOperation::load_matrices_transposed, r, from);
  }
  template <class T>
  std::uint32_t pack(float low, float high) {
    return T(low).bits | static_cast<std::uint32_t>(T(high).bits) << 16;
  }

  template <int bytes>
  void copy_async(std::uint32_t to, const void* from, bool valid) {
    check(!valid || reinterpret_cast<std::uintptr_t>(from) % bytes == 0, "a copy of ", bytes,
          " bytes from an address that is no multiple of it");
    state_->memory.begin_copy(thread_, to, bytes);
    const emulator::Copy copy{to, bytes, valid ? from : nullptr};
    if (scheduler_->launch.early_copies)
      land(copy);
    else
      groups().back().push_back(copy);
  }
  void commit() { groups().emplace_back(); }
  template <int pending>
  void wait() {
    while (groups().size() > pending + 1) {
      for (const emulator::Copy& copy : groups().front()) land(copy);
      groups().pop_front();
    }
  }

  void store(std::uint32_t to, std::uint32_t word) { load(WarpOperation::store, &word, to); }
  void load_pair(float (&x)[2], std::uint32_t from) { state_->memory.read(thread_, from, x, 8); }
  void read16(std::uint32_t (&words)[4], const void* from) {
    check(reinterpret_cast<std::uintptr_t>(from) % 16 == 0, "16 bytes from an odd address");
    std::memcpy(words, from, 16);
  }
  void store16(void* to, const std::uint32_t (&words)[4]) {
    check(reinterpret_cast<std::uintptr_t>(to) % 16 == 0, "16 bytes to an odd address");
    std::memcpy(to, words, 16);
  }
  void store4(void* to, std::uint32_t word) { std::memcpy(to, &word, 4); }
  void read4(float (&x)[4], const float* from) {
    check(reinterpret_cast<std::uintptr_t>(from) % 16 == 0, "16 bytes from an odd address");
    std::memcpy(x, from, 16);
  }
  void write4(float* to, const float (&x)[4]) {
    check(reinterpret_cast<std::uintptr_t>(to) % 16 == 0, "16 bytes to an odd address");
    state_->writes.push_back({to, {x[0], x[1], x[2], x[3]}, thread_, state_->epoch});
  }

  unsigned take_ticket(unsigned* from) {
    if (thread_ == 0) state_->ticket = (*from)++;
    barrier();
    const unsigned ticket = state_->ticket;
    barrier();
    return ticket;
  }
  void await(const unsigned* at, unsigned value) {
    emulator::Thread& f = fiber();
    f.polled = at;
    f.wanted = value;
    if (*at != value) leave(emulator::State::polling);
  }
  void release(unsigned* at, unsigned value) {
    state_->publish(thread_, false);
    *at = value;
  }

  float exp2(float x) const { return std::exp2(x); }
  float log(float x) const { return std::log(x); }
  float larger(float x, float y) const { return std::fmax(x, y); }
  std::uint32_t unknown(std::uint32_t x) const { return x; }

 private:
  emulator::Thread& fiber() { return state_->fibers[static_cast<std::size_t>(thread_)]; }
  std::deque<std::vector<emulator::Copy>>& groups() { return fiber().groups; }

  void land(const emulator::Copy& copy) {
    const unsigned char zeros[16] = {};
    state_->memory.end_copy(thread_, copy.to, copy.from != nullptr ? copy.from : zeros, copy.bytes);
  }

  static WarpRequest request(WarpOperation operation) {
    WarpRequest r;
    r.operation = operation;
    return r;
  }
  void load(WarpOperation operation, std::uint32_t* words, std::uint32_t address) {
    WarpRequest r = request(operation);
    r.words = words;
    r.address = address;
    together(r);
  }

  /// Waits for the other lanes; the last one executes the operation for all.
  void together(const WarpRequest& mine) {
    const auto warp = static_cast<std::size_t>(thread_ / 32);
    WarpRequests& requests = state_->warps[warp];
    if (state_->arrived[warp] == 0)
      for (WarpRequest& r : requests) r.operation = WarpOperation::none;
    for (const WarpRequest& r : requests)
      check(r.operation == WarpOperation::none ||
                (r.operation == mine.operation && r.lanes == mine.lanes),
            "lanes of warp ", warp, " of block ", state_->index, " do different things");
    requests[static_cast<std::size_t>(thread_ % 32)] = mine;
    if (++state_->arrived[warp] < 32) return leave(emulator::State::at_warp);
    state_->arrived[warp] = 0;
    ++scheduler_->report.operations;
    state_->counts[warp].add(mine.operation);
    execute(requests, state_->memory, thread_ / 32 * 32, scheduler_->report.bank_conflicts);
    for (std::size_t lane = 0; lane < 32; ++lane)
      state_->fibers[32 * warp + lane].state = emulator::State::ready;
  }

  void leave(emulator::State state) {
    emulator::Thread& f = fiber();
    f.state = state;
    const int lane = thread_ % 32;
    for (int i = 1; i < 32; ++i) {  // directly to another lane, if one can run
      const int next = scheduler_->launch.backwards ? (lane + 32 - i) % 32 : (lane + i) % 32;
      emulator::Thread& other = state_->fibers[static_cast<std::size_t>(thread_ - lane + next)];
      if (other.state != emulator::State::ready) continue;
      f.fiber.go_to(other.fiber);
      return;
    }
    f.fiber.go_to(scheduler_->home);
  }

  emulator::Scheduler* scheduler_;
  emulator::BlockState* state_;
  int thread_;
};

/// Runs body(block) for every thread of every block.
class BlockEmulator {
 public:
  using Body = std::function<void(EmulatedBlock&)>;

  static EmulatorReport run(const EmulatorLaunch& launch, const Body& body) {
    check(launch.threads % 32 == 0, launch.threads, " threads are not whole warps");
    BlockEmulator emulator(launch, body);
    emulator.run();
    return emulator.scheduler_.report;
  }

 private:
  BlockEmulator(const EmulatorLaunch& launch, const Body& body) : body_(body) {
    scheduler_.launch = launch;
  }

  void run() {
    const EmulatorLaunch& launch = scheduler_.launch;
    int next = 0;
    std::vector<std::unique_ptr<emulator::BlockState>> blocks;
    while (next < launch.blocks || !blocks.empty()) {
      while (next < launch.blocks && static_cast<int>(blocks.size()) < launch.resident) {
        const int index = launch.backwards ? launch.blocks - 1 - next : next;
        blocks.push_back(std::make_unique<emulator::BlockState>(index, launch));
        start(*blocks.back());
        ++next;
      }
      bool progress = false;
      for (auto& block : blocks) progress = turn(*block) || progress;
      check(progress, "threads wait for each other without end");
      std::erase_if(blocks, [&](auto& block) {
        if (block->done < launch.threads) return false;
        block->publish(0, true);
        for (const WarpCounts& c : block->counts) scheduler_.report.most.raise_to(c);
        for (emulator::Thread& f : block->fibers) stacks_.push_back(f.fiber.take_stack());
        return true;
      });
    }
  }

  /// Runs every thread of a block that can continue; returns whether there was one.
  bool turn(emulator::BlockState& block) {
    bool progress = false;
    const int threads = scheduler_.launch.threads;
    for (int i = 0; i < threads; ++i) {
      const int thread = scheduler_.launch.backwards ? threads - 1 - i : i;
      emulator::Thread& f = block.fibers[static_cast<std::size_t>(thread)];
      if (f.state == emulator::State::polling && *f.polled == f.wanted)
        f.state = emulator::State::ready;
      if (f.state != emulator::State::ready) continue;
      progress = true;
      scheduler_.home.go_to(f.fiber);
      if (scheduler_.error) std::rethrow_exception(scheduler_.error);
    }
    return progress;
  }

  struct Start {
    BlockEmulator* emulator;
    emulator::BlockState* block;
    int thread;
  };

  void start(emulator::BlockState& block) {
    for (int thread = 0; thread < scheduler_.launch.threads; ++thread) {
      emulator::Thread& f = block.fibers[static_cast<std::size_t>(thread)];
      if (stacks_.empty())  // not cleared: pages are used as they are touched
        stacks_.emplace_back(new char[Fiber::stack_bytes]);
      f.groups.emplace_back();
      starts_.push_back({this, &block, thread});
      f.fiber.prepare(std::move(stacks_.back()), enter, &starts_.back(), scheduler_.home);
      stacks_.pop_back();
    }
  }

  static void enter(unsigned low, unsigned high) {
    const auto address =
        static_cast<std::uintptr_t>(std::uint64_t{low} | std::uint64_t{high} << 32);
    const Start start = *reinterpret_cast<const Start*>(address);
    emulator::Scheduler& scheduler = start.emulator->scheduler_;
    Fiber::begin(scheduler.home);
    try {
      EmulatedBlock block(scheduler, *start.block, start.thread);
      start.emulator->body_(block);
    } catch (...) {
      scheduler.error = std::current_exception();
    }
    start.block->fibers[static_cast<std::size_t>(start.thread)].state = emulator::State::done;
    ++start.block->done;
    Fiber::end(scheduler.home);
  }

  emulator::Scheduler scheduler_;
  Body body_;
  std::deque<Start> starts_;  // addresses are stable
  std::vector<Fiber::Stack> stacks_;
};

}  // namespace trireme::testing
