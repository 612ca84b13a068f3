#include <trireme/base/check.hpp>
#include <trireme/base/narrow.hpp>
#include <trireme/kernels/warp_tiles.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#if !defined(__CUDACC__) && !defined(__HIPCC__)  // kernels for hosts alone

#include "support/block_emulator.hpp"

/// The emulator detects errors that a device would not report.
namespace trireme::testing {
namespace {

EmulatorLaunch one_warp() {
  EmulatorLaunch launch;
  launch.shared_bytes = 4096;
  return launch;
}
EmulatorLaunch two_warps() {
  EmulatorLaunch launch = one_warp();
  launch.threads = 64;
  return launch;
}

/// The message of the error that a kernel ends with; empty if there is none.
std::string block_failure(const EmulatorLaunch& launch, const BlockEmulator::Body& body) {
  try {
    BlockEmulator::run(launch, body);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void expect_block_failure(const EmulatorLaunch& launch, const std::string& part,
                          const BlockEmulator::Body& body) {
  const std::string found = block_failure(launch, body);
  EXPECT_NE(found.find(part), std::string::npos) << "found: " << found;
}

std::uint32_t word(int i) {
  return 4 * static_cast<std::uint32_t>(i);
}

TEST(BlockEmulator, MissingBarrierIsAnError) {
  const auto pass_on = [](bool with_barrier) {
    return [=](EmulatedBlock& block) {
      block.store(word(block.thread()), 1);
      if (with_barrier) block.barrier();
      float x[2];
      block.load_pair(x, word((block.thread() + 32) % 64 / 2 * 2));
    };
  };
  expect_block_failure(two_warps(), "without a barrier", pass_on(false));
  EXPECT_EQ(block_failure(two_warps(), pass_on(true)), "");
}

TEST(BlockEmulator, OverwritingDataStillInUseIsAnError) {
  for (const bool early : {false, true}) {
    EmulatorLaunch launch = two_warps();
    launch.early_copies = early;
    const std::vector<std::uint32_t> zeros(64);
    const auto reuse = [&](bool with_barrier) {
      return [&zeros, with_barrier](EmulatedBlock& block) {
        block.store(word(block.thread()), 1);
        block.barrier();
        float x[2];
        block.load_pair(x, word((block.thread() + 2) % 64 / 2 * 2));
        if (with_barrier) block.barrier();
        block.copy_async<4>(word(block.thread()), &zeros[0], true);
      };
    };
    expect_block_failure(launch, "without a barrier", reuse(false));
    EXPECT_EQ(block_failure(launch, reuse(true)), "");
  }
}

TEST(BlockEmulator, ReadingACopyBeforeWaitingIsAnError) {
  const std::vector<std::uint32_t> source(128, 7);
  const auto copy = [&](int groups) {
    return [&source, groups](EmulatedBlock& block) {
      const auto i = static_cast<std::size_t>(block.thread());
      block.copy_async<4>(word(block.thread()), &source[i], true);
      block.commit();
      block.copy_async<4>(word(block.thread() + 64), &source[i], true);
      block.commit();
      if (groups == 1) block.wait<1>();
      if (groups == 2) block.wait<0>();
      block.barrier();
      float x[2];
      block.load_pair(x, word(2 * block.thread()));
    };
  };
  expect_block_failure(two_warps(), "before it waited", copy(0));
  expect_block_failure(two_warps(), "before it waited", copy(1));
  EXPECT_EQ(block_failure(two_warps(), copy(2)), "");
}

TEST(BlockEmulator, SkippedCopiesGiveZero) {
  const std::uint32_t source = 7;
  float found[2] = {1, 1};
  BlockEmulator::run(one_warp(), [&](EmulatedBlock& block) {
    if (block.thread() > 0) return;
    block.copy_async<4>(0, &source, false);
    block.commit();
    block.wait<0>();
    block.load_pair(found, 0);
  });
  EXPECT_EQ(found[0], 0.0F);
  EXPECT_TRUE(std::isnan(found[1])) << "shared memory begins as NaN";
}

TEST(BlockEmulator, DivergenceIsAnError) {
  expect_block_failure(one_warp(), "do different things", [](EmulatedBlock& block) {
    if (block.thread() < 16)
      block.shuffle_xor(1, 1);
    else
      block.any(true);
  });
  expect_block_failure(one_warp(), "without end", [](EmulatedBlock& block) {
    if (block.thread() < 31) block.any(true);
  });
  expect_block_failure(two_warps(), "without end", [](EmulatedBlock& block) {
    if (block.thread() != 40) block.barrier();
  });
}

TEST(BlockEmulator, CountsBankConflicts) {
  const auto conflicts = [](std::uint32_t row_bytes) {
    return BlockEmulator::run(one_warp(),
                              [=](EmulatedBlock& block) {
                                std::uint32_t r[4];
                                block.load_matrices(
                                    r, row_bytes * static_cast<std::uint32_t>(block.thread() % 8));
                              })
        .bank_conflicts;
  };
  EXPECT_EQ(conflicts(16), 0);
  EXPECT_EQ(conflicts(144), 0);
  EXPECT_EQ(conflicts(32), 4 * 1);
  EXPECT_EQ(conflicts(128), 4 * 7);
  const auto stores = [](int stride) {
    return BlockEmulator::run(
               one_warp(),
               [=](EmulatedBlock& block) { block.store(word(stride * block.thread()), 1); })
        .bank_conflicts;
  };
  EXPECT_EQ(stores(1), 0);
  EXPECT_EQ(stores(4), 3);
  EXPECT_EQ(stores(32), 31);
}

/// Fragments come from shared memory by load_matrices and are multiplied: a product of matrices.
TEST(BlockEmulator, MultipliesMatrices) {
  float a[16][16], b[16][8], c[16][8] = {};
  for (int i = 0; i < 16; ++i)
    for (int k = 0; k < 16; ++k) a[i][k] = static_cast<float>((3 * i + 5 * k) % 7 - 3);
  for (int k = 0; k < 16; ++k)
    for (int j = 0; j < 8; ++j) b[k][j] = static_cast<float>((2 * k + 3 * j) % 5 - 2);
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 8; ++j)
      for (int k = 0; k < 16; ++k) c[i][j] += a[i][k] * b[k][j];
  BlockEmulator::run(one_warp(), [&](EmulatedBlock& block) {
    const int lane = block.thread(), g = lane / 4, t = lane % 4;
    // a as [row, depth] from 0, followed by b as [column, depth] and as [depth, column]
    const auto store = [&](std::uint32_t at, int rows, int columns, auto number) {
      for (int i = 2 * lane; i < rows * columns; i += 64)
        block.store(at + static_cast<std::uint32_t>(2 * i),
                    block.pack<Bf16>(number(i / columns, i % columns),
                                     number(i / columns, i % columns + 1)));
    };
    store(0, 16, 16, [&](int i, int k) { return a[i][k]; });
    store(512, 8, 16, [&](int j, int k) { return b[k][j]; });
    store(1024, 16, 8, [&](int k, int j) { return b[k][j]; });
    block.barrier();
    const auto lanes = static_cast<std::uint32_t>(lane);
    std::uint32_t left[4], right[4], transposed[4];
    block.load_matrices(left, lanes % 16 * 32 + lanes / 16 * 16);
    block.load_matrices(right, 512 + lanes % 8 * 32 + lanes / 8 % 2 * 16);
    block.load_matrices_transposed(transposed, 1024 + lanes % 16 * 16);
    for (const auto& r : {right, transposed}) {
      float sums[4] = {0, 0, 0, 0};
      block.multiply_add<Bf16>(sums, left, r[0], r[1]);
      EXPECT_EQ(sums[0], c[g][2 * t]);
      EXPECT_EQ(sums[1], c[g][2 * t + 1]);
      EXPECT_EQ(sums[2], c[g + 8][2 * t]);
      EXPECT_EQ(sums[3], c[g + 8][2 * t + 1]);
    }
  });
}

TEST(BlockEmulator, TransposesWordsOfFourLanes) {
  BlockEmulator::run(one_warp(), [](EmulatedBlock& block) {
    const auto lane = static_cast<std::uint32_t>(block.thread());
    std::uint32_t near[4], far[4];
    for (std::uint32_t i = 0; i < 4; ++i) near[i] = far[i] = 100 * lane + i;
    kernels::transpose_words<1>(block, near);
    kernels::transpose_words<4>(block, far);
    for (std::uint32_t i = 0; i < 4; ++i) {
      EXPECT_EQ(near[i], 100 * (lane / 4 * 4 + i) + lane % 4);
      EXPECT_EQ(far[i], 100 * (lane / 16 * 16 + 4 * i + lane % 4) + lane / 4 % 4);
    }
  });
}

/// Other blocks see what a block wrote when it is released after a barrier, and not before.
TEST(BlockEmulator, ReleasedWritesBecomeVisible) {
  const auto pass_on = [](bool with_barrier, bool backwards) {
    EmulatorLaunch launch = two_warps();
    launch.blocks = launch.resident = 2;
    launch.backwards = backwards;
    alignas(16) float data[64 * 4] = {};
    unsigned ticket = 0, turn = 0;
    bool good = true;
    BlockEmulator::run(launch, [&](EmulatedBlock& block) {
      const unsigned mine = block.take_ticket(&ticket);
      float x[4] = {1, 2, 3, 4};
      if (mine == 0) {
        block.write4(data + 4 * block.thread(), x);
        if (with_barrier) block.barrier();
        if (block.thread() == 0) block.release(&turn, 1);
        block.barrier();
        block.barrier();
      } else {
        if (block.thread() == 0) block.await(&turn, 1);
        block.barrier();
        block.read4(x, data + 4 * ((block.thread() + 32) % 64));
        good = good && x[3] == 4;
      }
    });
    return good;
  };
  EXPECT_TRUE(pass_on(true, false));
  EXPECT_TRUE(pass_on(true, true));
  EXPECT_FALSE(pass_on(false, false));
}

/// A block that waits for one that cannot begin: the reason for tickets.
TEST(BlockEmulator, WaitingForAnUnstartedBlockIsAnError) {
  unsigned turn = 0;
  EmulatorLaunch launch = one_warp();
  launch.blocks = 2;
  const auto wait_for_the_other = [&](EmulatedBlock& block) {
    if (block.thread() > 0) return;
    if (block.index() == 0) block.await(&turn, 1);
    if (block.index() == 1) block.release(&turn, 1);
  };
  expect_block_failure(launch, "without end", wait_for_the_other);
  launch.resident = 2;
  EXPECT_EQ(block_failure(launch, wait_for_the_other), "");
}

}  // namespace
}  // namespace trireme::testing

#endif
