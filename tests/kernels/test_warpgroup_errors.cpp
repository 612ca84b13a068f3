#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#if !defined(__CUDACC__) && !defined(__HIPCC__)  // kernels for hosts alone

#include "kernels/warpgroup_cases.hpp"

/// Errors in the use of products, copies and barriers that the emulator detects and a device would
/// not report.
namespace trireme::testing {
namespace {

using namespace warpgroup_cases;

/// A tile of ones is multiplied with itself; between the steps something may be left out.
enum class Forgotten { nothing, publication, barrier, begin, commit, wait };

void square(Block& block, Forgotten forgotten) {
  const GroupRows<64, 64> tile{0};
  fill(block, tile, [](int, int) { return 1.0F; });
  if (forgotten != Forgotten::publication) block.publish_to_products();
  if (forgotten != Forgotten::barrier) block.barrier();
  float c[8][4];
  if (forgotten != Forgotten::begin) block.begin_products(c);
  for (int k = 0; k < 4; ++k)
    block.multiply<Bf16, 64, Major::depth, Major::depth>(c, tile.depth_major(0, k),
                                                         tile.depth_major(0, k), k > 0);
  if (forgotten != Forgotten::commit) block.commit_products();
  if (forgotten != Forgotten::wait) block.wait_products<0>(c);
  block.pack<Bf16>(c[0][0], c[7][3]);
}

TEST(WarpgroupErrors, MissingStepsOfProductsAreErrors) {
  const auto result = [](Forgotten forgotten) {
    return failure(groups(1), [=](Block& block) { square(block, forgotten); });
  };
  const auto expect = [&](Forgotten forgotten, const char* part) {
    EXPECT_NE(result(forgotten).find(part), std::string::npos) << result(forgotten);
  };
  EXPECT_EQ(result(Forgotten::nothing), "");
  expect(Forgotten::publication, "did not publish to products");
  expect(Forgotten::barrier, "without a barrier between them");
  expect(Forgotten::begin, "not given to begin_products");
  expect(Forgotten::commit, "still in flight");
  expect(Forgotten::wait, "used before it was waited for");
}

/// One product in flight while the threads touch its registers.
void touch(Block& block, const std::function<void(float (&)[8][4], std::uint32_t (&)[4])>& use,
           bool after_wait) {
  const GroupRows<64, 64> tile{0};
  fill(block, tile, [](int, int) { return 1.0F; });
  block.publish_to_products();
  block.barrier();
  float c[8][4] = {};
  std::uint32_t a[4] = {};
  block.begin_products(c, a);
  block.multiply_left<Bf16, 64, Major::edge>(c, a, tile.edge_major(0, 0), true);
  block.commit_products();
  if (!after_wait) use(c, a);
  block.wait_products<0>(c, a);
  if (after_wait) use(c, a);
}

TEST(WarpgroupErrors, TouchingRegistersInFlightIsAnError) {
  const auto write = [](float(&c)[8][4], std::uint32_t(&)[4]) { c[3][2] *= 2.0F; };
  const auto change_left = [](float(&)[8][4], std::uint32_t(&a)[4]) { a[1] = 5; };
  const auto with = [](const auto& use, bool after) {
    return failure(groups(1), [&](Block& block) { touch(block, use, after); });
  };
  EXPECT_NE(with(write, false).find("written before it was waited"), std::string::npos);
  EXPECT_NE(with(change_left, false).find("left operand changes"), std::string::npos);
  EXPECT_EQ(with(write, true), "");
  EXPECT_EQ(with(change_left, true), "");
  expect_failure(groups(1), "changed after begin_products", [](Block& block) {
    float c[8][4] = {};
    block.begin_products(c);
    c[2][1] = 3.0F;
    block.multiply<Bf16, 64, Major::depth, Major::depth>(
        c, kernels::matrix_descriptor(0, 16, 1024), kernels::matrix_descriptor(0, 16, 1024), true);
  });
}

/// A producer's copy replaces a tile as soon as `arrivals` arrivals say that it has been read.
void ring(Block& block, const TensorMap& map, int arrivals_per_group, bool wait_first) {
  const GroupRows<64, 64> tile{1024};
  const std::uint32_t full = 0, empty = 8;
  if (block.thread() == 0) {
    block.init_phases(full, 1);
    block.init_phases(empty, arrivals_per_group);
    block.publish_phases();
  }
  block.barrier();
  if (block.group() == 1) {
    if (block.thread() != 128) return;
    for (std::uint32_t round = 0; round < 3; ++round) {
      block.await_phase(empty, (round & 1) ^ 1);
      block.arrive(full, tile.bytes);
      block.copy_box(tile.first, map, 0, 0, 0, 0, full);
    }
    return;
  }
  for (std::uint32_t round = 0; round < 3; ++round) {
    block.await_phase(full, round & 1);
    float c[8][4];
    block.begin_products(c);
    for (int k = 0; k < 4; ++k)
      block.multiply<Bf16, 64, Major::depth, Major::depth>(c, tile.depth_major(0, k),
                                                           tile.depth_major(0, k), k > 0);
    block.commit_products();
    const bool arrives = block.thread() % (arrivals_per_group == 4 ? 32 : 128) == 0;
    if (!wait_first && arrives) block.arrive(empty);
    block.wait_products<0>(c);
    if (wait_first && arrives) block.arrive(empty);
    EXPECT_EQ(c[0][0], 64.0F);
  }
}

TEST(WarpgroupErrors, ReplacingOperandsInUseIsAnError) {
  const std::vector<Bf16> ones(64 * 64, Bf16(1.0F));
  const TensorMap map =
      emulated_tensor_map({ones.data(), {64, 1, 64, 1}, {128, 128, 8192}, {64, 1, 64, 1}});
  for (const bool early : {false, true})
    for (const bool backwards : {false, true}) {
      EmulatorLaunch launch = groups(2);
      launch.early_copies = early;
      launch.backwards = backwards;
      EXPECT_EQ(failure(launch, [&](Block& block) { ring(block, map, 4, true); }), "");
      expect_failure(launch, "without having waited for it",
                     [&](Block& block) { ring(block, map, 4, false); });
      expect_failure(launch, "without having waited for it",
                     [&](Block& block) { ring(block, map, 1, true); });
    }
}

TEST(WarpgroupErrors, ReadingABoxBeforeItsPhaseEndsIsAnError) {
  const std::vector<Bf16> ones(64 * 64, Bf16(1.0F));
  const TensorMap map =
      emulated_tensor_map({ones.data(), {64, 1, 64, 1}, {128, 128, 8192}, {64, 1, 64, 1}});
  for (const bool early : {false, true}) {
    EmulatorLaunch launch = groups(1);
    launch.early_copies = early;
    const auto read = [&](Block& block, bool waits) {
      if (block.thread() == 0) {
        block.init_phases(0, 1);
        block.publish_phases();
      }
      block.barrier();
      if (block.thread() == 0) {
        block.arrive(0, 8192);
        block.copy_box(1024, map, 0, 0, 0, 0, 0);
      }
      block.barrier();
      if (waits) block.await_phase(0, 0);
      float x[2];
      block.load_pair(x, 1024 + static_cast<std::uint32_t>(8 * block.thread()));
      if (!waits) block.await_phase(0, 0);
    };
    EXPECT_EQ(failure(launch, [&](Block& block) { read(block, true); }), "");
    expect_failure(launch, early ? "before it waited for the copy" : "a copy to it is under way",
                   [&](Block& block) { read(block, false); });
  }
}

TEST(WarpgroupErrors, MisusedBarriersAreErrors) {
  expect_failure(groups(1), "nobody initialised", [](Block& block) { block.arrive(8); });
  expect_failure(groups(1), "has not published", [](Block& block) {
    if (block.thread() == 0) block.init_phases(8, 1);
    block.barrier();
    block.await_phase(8, 0);
  });
  expect_failure(groups(1), "without a barrier between", [](Block& block) {
    if (block.thread() == 0) {
      block.init_phases(8, 1);
      block.publish_phases();
    }
    if (block.thread() == 64) block.await_phase(8, 1);
    if (block.thread() < 64) block.warp_barrier();
  });
  expect_failure(groups(1), "phase of the barrier at 8", [](Block& block) {
    if (block.thread() == 0) {
      block.init_phases(8, 128);
      block.publish_phases();
    }
    block.barrier();
    if (block.thread() > 0) block.arrive(8);
    block.await_phase(8, 0);
  });
  expect_failure(groups(1), "waits for 64 bytes", [](Block& block) {
    if (block.thread() > 0) return;
    block.init_phases(8, 1);
    block.publish_phases();
    block.arrive(8, 64);
  });
  expect_failure(groups(1), "as if of 128",
                 [](Block& block) { block.meet(1, block.thread() < 64 ? 64 + 32 : 128); });
  expect_failure(groups(1), "have come to a barrier of 128", [](Block& block) {
    if (block.thread() < 32)
      block.signal(2, 128);
    else
      block.warp_barrier();
  });
  expect_failure(groups(2), "shared address 64 is part of a barrier", [](Block& block) {
    if (block.thread() == 0) block.init_phases(64, 1);
    float x[2];
    if (block.thread() == 0) block.load_pair(x, 64);
  });
}

/// meet and signal order what threads did before; two groups take turns.
TEST(WarpgroupErrors, UnsynchronisedTurnsAreErrors) {
  const auto turns = [](bool signals) {
    return [=](Block& block) {
      const int g = block.group();
      if (g == 1) block.signal(1, 256);
      for (int round = 0; round < 3; ++round) {
        block.meet(1 + g, 256);
        block.store(static_cast<std::uint32_t>(4 * (block.thread() % 128)), 1);
        if (signals || g == 0) block.signal(2 - g, 256);
      }
      if (g == 0) block.meet(1, 256);
    };
  };
  EXPECT_EQ(failure(groups(2), turns(true)), "");
  expect_failure(groups(2), "barrier of threads 1", turns(false));
}

TEST(WarpgroupErrors, DifferentProductsWithinAGroupAreErrors) {
  const auto body = [](bool same) {
    return [=](Block& block) {
      const GroupRows<64, 64> tile{0};
      fill(block, tile, [](int, int) { return 1.0F; });
      block.publish_to_products();
      block.barrier();
      float c[8][4];
      const int k = !same && block.thread() >= 96 ? 1 : 0;
      block.begin_products(c);
      block.multiply<Bf16, 64, Major::depth, Major::depth>(c, tile.depth_major(0, k),
                                                           tile.depth_major(0, 0), false);
      block.commit_products();
      block.wait_products<0>(c);
    };
  };
  EXPECT_EQ(failure(groups(1), body(true)), "");
  expect_failure(groups(1), "another product than its group", body(false));
}

TEST(WarpgroupErrors, ExceedingTheRegistersOfABlockIsAnError) {
  const auto ask = [](bool give) {
    return [=](Block& block) {
      if (block.group() == 0) {
        if (give) block.lower_registers<24>();
      } else {
        block.raise_registers<240>();
      }
    };
  };
  EXPECT_EQ(failure(groups(3), ask(true)), "");
  expect_failure(groups(3), "the block's threads have 82944 registers", ask(false));
  expect_failure(groups(3), "from 168 to 160", [](Block& block) { block.raise_registers<160>(); });
}

}  // namespace
}  // namespace trireme::testing

#endif
