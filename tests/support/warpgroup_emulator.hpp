#pragma once

#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/group_block.hpp"

namespace trireme::testing {

/// Runs kernels for blocks of warpgroups on a host and checks them like BlockEmulator, with the
/// rules of group_block.hpp and its included files for products, copies and barriers. A copy
/// arrives immediately, or when no thread can continue without one, in first or last order.
class WarpgroupEmulator {
 public:
  using Body = std::function<void(EmulatedGroupBlock&)>;

  static EmulatorReport run(const EmulatorLaunch& launch, const Body& body) {
    check(launch.threads % kernels::group_threads == 0, launch.threads,
          " threads are not whole warpgroups");
    WarpgroupEmulator emulator(launch, body);
    emulator.run();
    return emulator.scheduler_.report;
  }

 private:
  using State = emulator::GroupBlockState;

  WarpgroupEmulator(const EmulatorLaunch& launch, const Body& body) : body_(body) {
    scheduler_.launch = launch;
  }

  void run() {
    const EmulatorLaunch& launch = scheduler_.launch;
    int next = 0;
    std::vector<std::unique_ptr<State>> blocks;
    while (next < launch.blocks || !blocks.empty()) {
      while (next < launch.blocks && static_cast<int>(blocks.size()) < launch.resident) {
        const int index = launch.backwards ? launch.blocks - 1 - next : next;
        blocks.push_back(std::make_unique<State>(index, launch));
        start(*blocks.back());
        ++next;
      }
      bool progress = false;
      for (auto& block : blocks) progress = turn(*block) || progress;
      if (!progress) land_one(blocks);
      std::erase_if(blocks, [&](auto& block) {
        if (block->done < launch.threads) return false;
        block->check_end();
        block->publish(0, true);
        for (const auto& products : block->products)
          scheduler_.report.most.raise_to({static_cast<std::int64_t>(products.size()), 0});
        for (emulator::GroupThread& f : block->threads) stacks_.push_back(f.fiber.take_stack());
        return true;
      });
    }
  }

  void land_one(const std::vector<std::unique_ptr<State>>& blocks) {
    for (const auto& block : blocks) {
      if (block->copies.empty()) continue;
      return block->land(scheduler_.launch.backwards ? block->copies.size() - 1 : 0);
    }
    std::string waiting;
    for (const auto& block : blocks)
      for (std::size_t t = 0; t < block->threads.size(); t += 32) {
        const emulator::GroupThread& f = block->threads[t];
        if (f.state != emulator::State::done)
          waiting += text("; block ", block->index, " thread ", t, ": ", f.doing, ' ', f.with);
      }
    check(false, "threads wait for each other without end", waiting);
  }

  /// Runs every thread of a block that can continue; returns whether there was one.
  bool turn(State& block) {
    bool progress = false;
    const int threads = scheduler_.launch.threads;
    for (int i = 0; i < threads; ++i) {
      const int thread = scheduler_.launch.backwards ? threads - 1 - i : i;
      emulator::GroupThread& f = block.threads[static_cast<std::size_t>(thread)];
      if (f.state == emulator::State::polling && f.until()) f.state = emulator::State::ready;
      if (f.state != emulator::State::ready) continue;
      progress = true;
      scheduler_.home.go_to(f.fiber);
      if (scheduler_.error) std::rethrow_exception(scheduler_.error);
    }
    return progress;
  }

  struct Start {
    WarpgroupEmulator* emulator;
    State* block;
    int thread;
  };

  void start(State& block) {
    for (int thread = 0; thread < scheduler_.launch.threads; ++thread) {
      emulator::GroupThread& f = block.threads[static_cast<std::size_t>(thread)];
      if (stacks_.empty())  // not cleared: pages are used as they are touched
        stacks_.emplace_back(new char[Fiber::stack_bytes]);
      starts_.push_back({this, &block, thread});
      f.fiber.prepare(std::move(stacks_.back()), enter, &starts_.back(), scheduler_.home);
      stacks_.pop_back();
    }
  }

  static void enter(unsigned low, unsigned high) {
    const auto address =
        static_cast<std::uintptr_t>(std::uint64_t{low} | std::uint64_t{high} << 32);
    const Start start = *reinterpret_cast<const Start*>(address);
    emulator::GroupScheduler& scheduler = start.emulator->scheduler_;
    Fiber::begin(scheduler.home);
    emulator::GroupThread& self = start.block->threads[static_cast<std::size_t>(start.thread)];
    try {
      EmulatedGroupBlock block(scheduler, *start.block, start.thread);
      start.emulator->body_(block);
      check(self.registers.idle(), "thread ", start.thread, " ends with products in flight");
    } catch (...) {
      scheduler.error = std::current_exception();
    }
    self.state = emulator::State::done;
    ++start.block->done;
    Fiber::end(scheduler.home);
  }

  emulator::GroupScheduler scheduler_;
  Body body_;
  std::deque<Start> starts_;  // addresses are stable
  std::vector<Fiber::Stack> stacks_;
};

}  // namespace trireme::testing
