#pragma once

#include <trireme/base/check.hpp>

#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <vector>

#include "support/block_emulator.hpp"
#include "support/emulated_phases.hpp"
#include "support/emulated_registers.hpp"

/// An emulated block of warpgroups: its threads, its memory, and pending operations.
namespace trireme::testing {

namespace emulator {

struct GroupWrite {
  float* to;
  float values[4];
  int thread;
  std::int32_t event;
  bool add = false;
};

struct GroupThread {
  Fiber fiber;
  State state = State::ready;
  std::function<bool()> until;  // condition that it polls, if any
  const char* doing = "";
  std::uint32_t with = 0;
  RegistersInFlight registers;
  std::vector<GroupWrite> sending;  // until await_sent
  std::int32_t sent = 0;            // number of sends
};

struct GroupBlockState {
  int index;
  ThreadOrder order;
  OrderedMemory memory;
  PhaseTable phases;
  std::vector<GroupThread> threads;
  std::vector<WarpRequests> warps;
  std::vector<int> arrived;                        // lanes of each warp
  Meeting meetings[16];                            // number 0: all threads
  std::deque<BoxCopy> copies;                      // pending
  std::vector<std::vector<ProductKind>> products;  // of each group, in order
  std::vector<std::size_t> issued;                 // of each warp
  std::vector<int> registers;                      // of each warp's threads
  std::vector<GroupWrite> writes;
  int done = 0;
  unsigned ticket = 0;

  GroupBlockState(int index_, const EmulatorLaunch& launch)
      : index(index_),
        order(launch.threads),
        memory(launch.shared_bytes, order),
        threads(static_cast<std::size_t>(launch.threads)),
        warps(threads.size() / 32),
        arrived(warps.size(), 0),
        products(threads.size() / 128),
        issued(warps.size(), 0),
        registers(warps.size(), 65536 / launch.threads / 8 * 8) {}

  void land(std::size_t i) {
    const BoxCopy copy = copies[i];
    copies.erase(copies.begin() + static_cast<std::ptrdiff_t>(i));
    Phases& p = phases.find(copy.phases);
    copy.land([&](std::uint32_t to, const Piece& piece) {
      memory.end_copy(p.actor, p.ended + 1, to, piece.data(), 16);
    });
    p.complete(copy.bytes());
  }

  void publish(int thread, bool all) {
    std::vector<GroupWrite> later;
    for (const GroupWrite& w : writes)
      if (all || order.of(thread)[w.thread] >= w.event)
        for (int i = 0; i < 4; ++i) w.to[i] = w.add ? w.to[i] + w.values[i] : w.values[i];
      else
        later.push_back(w);
    writes = later;
  }

  void check_end() const {
    phases.check_complete();
    check(copies.empty(), "the block ends while copies are under way");
    int sum = 0;
    for (std::size_t w = 0; w < warps.size(); ++w) {
      check(issued[w] == products[w / 4].size(),
            "warps of a group issue different numbers of products");
      sum += 32 * registers[w];
    }
    check(sum <= 65536, "the block's threads have ", sum, " registers");
    for (const Meeting& m : meetings)
      check(m.arrived == 0, "the block ends while ", m.arrived,
            " threads have come to a barrier of ", m.threads);
  }
};

struct GroupScheduler {
  EmulatorLaunch launch;
  EmulatorReport report;
  Fiber home;
  std::exception_ptr error;
};

}  // namespace emulator

}  // namespace trireme::testing
