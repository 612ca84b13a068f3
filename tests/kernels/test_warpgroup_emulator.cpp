#include <trireme/base/check.hpp>
#include <trireme/base/narrow.hpp>
#include <trireme/kernels/warpgroup_tiles.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#if !defined(__CUDACC__)  // kernels for hosts alone

#include "support/warpgroup_emulator.hpp"

/// The emulator's products, copies and barriers, and the errors that it detects.
namespace trireme::testing {
namespace {

using kernels::GroupRows;
using kernels::Major;
using kernels::TensorMap;
using kernels::TensorMapShape;
using Block = EmulatedGroupBlock;

EmulatorLaunch groups(int n) {
  EmulatorLaunch launch;
  launch.threads = 128 * n;
  launch.shared_bytes = 96 * 1024;
  return launch;
}

std::string failure(const EmulatorLaunch& launch, const WarpgroupEmulator::Body& body) {
  try {
    WarpgroupEmulator::run(launch, body);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void expect_failure(const EmulatorLaunch& launch, const std::string& part,
                    const WarpgroupEmulator::Body& body) {
  const std::string found = failure(launch, body);
  EXPECT_NE(found.find(part), std::string::npos) << "expected: " << part << "\nfound: " << found;
}

/// Element (row, column) of two matrices of small integers: all their products' sums are exact.
float left_number(int i, int k) {
  return static_cast<float>((3 * i + 5 * k + i * k) % 7 - 3);
}
float right_number(int k, int n) {
  return static_cast<float>((2 * k + 3 * n + k * n) % 5 - 2);
}
template <int depth>
float expected(int i, int n) {
  float sum = 0.0F;
  for (int k = 0; k < depth; ++k) sum += left_number(i, k) * right_number(k, n);
  return sum;
}

/// All threads write number(row, column) into a tile.
template <int rows, int columns, class Number>
void fill(Block& block, GroupRows<rows, columns> tile, const Number& number) {
  for (int p = block.thread(); p < rows * columns / 2; p += 128) {
    const int row = p / (columns / 2), column = p % (columns / 2) * 2;
    block.store(tile.at(row, column / 8) + static_cast<std::uint32_t>(column % 8 * 2),
                block.pack<Bf16>(number(row, column), number(row, column + 1)));
  }
}

template <int columns, int depth>
void expect_product(Block& block, const float (&c)[columns / 8][4]) {
  const int lane = block.thread() % 32, row = block.thread() / 32 * 16 + lane / 4;
  for (int n = 0; n < columns / 8; ++n)
    for (int i = 0; i < 4; ++i)
      ASSERT_EQ(c[n][i], expected<depth>(row + i / 2 * 8, 8 * n + lane % 4 * 2 + i % 2));
}

/// Both operands in both layouts, and the left one in registers: five ways to the same product.
template <int columns, int depth>
void multiply_in_all_ways() {
  using LeftRows = GroupRows<64, depth>;
  using LeftColumns = GroupRows<depth, 64>;
  using RightRows = GroupRows<depth, columns>;
  using RightColumns = GroupRows<columns, depth>;
  EmulatorLaunch launch = groups(1);
  launch.shared_bytes =
      LeftRows::bytes + LeftColumns::bytes + RightRows::bytes + RightColumns::bytes;
  WarpgroupEmulator::run(launch, [](Block& block) {
    const LeftRows a{0};
    const LeftColumns at{a.first + LeftRows::bytes};
    const RightRows b{at.first + LeftColumns::bytes};
    const RightColumns bt{b.first + RightRows::bytes};
    fill(block, a, left_number);
    fill(block, at, [](int k, int i) { return left_number(i, k); });
    fill(block, b, right_number);
    fill(block, bt, [](int n, int k) { return right_number(k, n); });
    block.publish_to_products();
    block.barrier();
    constexpr Major d = Major::depth, e = Major::edge;
    float c[5][columns / 8][4] = {};
    std::uint32_t left[depth / 16][4];
    const int lane = block.thread() % 32, row = block.thread() / 32 * 16;
    for (int k = 0; k < depth / 16; ++k)
      block.load_matrices(left[k], a.at(row + lane % 16, 2 * k + lane / 16));
    block.begin_products(c, left);
    for (int k = 0; k < depth / 16; ++k) {
      block.multiply<Bf16, columns, d, d>(c[0], a.depth_major(0, k), bt.depth_major(0, k), k > 0);
      block.multiply<Bf16, columns, d, e>(c[1], a.depth_major(0, k), b.edge_major(0, k), k > 0);
      block.multiply<Bf16, columns, e, d>(c[2], at.edge_major(0, k), bt.depth_major(0, k), k > 0);
      block.multiply<Bf16, columns, e, e>(c[3], at.edge_major(0, k), b.edge_major(0, k), k > 0);
      block.multiply_left<Bf16, columns, e>(c[4], left[k], b.edge_major(0, k), k > 0);
    }
    block.commit_products();
    block.wait_products<0>(c, left);
    for (const auto& sums : c) expect_product<columns, depth>(block, sums);
  });
}

TEST(WarpgroupEmulator, MultipliesOperandsInEveryLayout) {
  multiply_in_all_ways<64, 64>();
  multiply_in_all_ways<80, 96>();
  multiply_in_all_ways<96, 128>();
  multiply_in_all_ways<128, 80>();
}

/// Addresses by hand: PTX ISA, "Strides", figures of 128-byte swizzling.
TEST(WarpgroupEmulator, TilesHaveTheLayoutOfThePtxIsa) {
  const GroupRows<16, 128> tile{2048};
  EXPECT_EQ(tile.bytes, 4096U);
  EXPECT_EQ(tile.at(0, 0), 2048U);
  EXPECT_EQ(tile.at(3, 5), 2048U + 3 * 128 + (5 ^ 3) * 16);
  EXPECT_EQ(tile.at(9, 15), 2048U + 2048 + 9 * 128 + (7 ^ 1) * 16);
  EXPECT_EQ(tile.depth_major(8, 6),
            std::uint64_t{0x40000040'00010000} | (2048 + 2048 + 1024 + 64) / 16);
  EXPECT_EQ(tile.edge_major(64, 0), std::uint64_t{0x40000040'00800000} | (2048 + 2048) / 16);
  EXPECT_EQ(emulator::swizzled(1024 + 3 * 128 + 5 * 16), 1024U + 3 * 128 + 6 * 16);
}

/// Rows of a sample of a batch, of one head among several: what is beyond head, sample or tensor is
/// zero, whichever copy lands first.
TEST(WarpgroupEmulator, CopiesBoxesWithZerosOutside) {
  constexpr int K = 80, heads = 3, S = 21, batch = 2, stride = K * heads + 8;
  std::vector<Bf16> x(static_cast<std::size_t>(batch * S * stride));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = Bf16(static_cast<float>(i % 251) + 1.0F);
  const TensorMap map = emulated_tensor_map({x.data(),
                                             {K, heads, S, batch},
                                             {2 * K, 2 * stride, std::int64_t{2} * stride * S},
                                             {64, 1, 16, 1}});
  for (const bool early : {false, true})
    for (const bool backwards : {false, true}) {
      EmulatorLaunch launch = groups(1);
      launch.early_copies = early;
      launch.backwards = backwards;
      WarpgroupEmulator::run(launch, [&](Block& block) {
        const GroupRows<16, K> tile{1024};
        if (block.thread() == 0) {
          block.init_phases(0, 1);
          block.publish_phases();
        }
        block.barrier();
        if (block.thread() == 0) {
          block.arrive(0, tile.bytes);
          for (int c = 0; c < tile.chunks; ++c)
            block.copy_box(tile.chunk(c), map, 64 * c, 1, 16, 0, 0);
        }
        block.await_phase(0, 0);
        for (int i = block.thread(); i < 16 * 64; i += 128) {
          const int row = i / 64, column = i % 64 * 2;
          std::uint32_t word[2];
          float pair[2];
          block.load_pair(
              pair, tile.at(row, column / 8) + static_cast<std::uint32_t>(column % 8 / 4 * 8));
          std::memcpy(word, pair, 8);
          for (int j = 0; j < 2; ++j) {
            const auto half = static_cast<std::uint16_t>(word[column % 4 / 2] >> 16 * j);
            const bool inside = 16 + row < S && column + j < K;
            const auto from = static_cast<std::size_t>((16 + row) * stride + K + column + j);
            ASSERT_EQ(half, inside ? x[from].bits : 0) << row << ' ' << column + j;
          }
        }
      });
    }
}

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

TEST(WarpgroupEmulator, ForgottenStepsOfProductsAreErrors) {
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

TEST(WarpgroupEmulator, TouchingRegistersInFlightIsAnError) {
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

TEST(WarpgroupEmulator, ReplacingWhatProductsReadIsAnError) {
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

TEST(WarpgroupEmulator, ReadingABoxBeforeItsPhaseEndsIsAnError) {
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

TEST(WarpgroupEmulator, MisusedBarriersAreErrors) {
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
TEST(WarpgroupEmulator, GroupsTakeTurns) {
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

TEST(WarpgroupEmulator, WarpsOfAGroupIssueTheSameProducts) {
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

TEST(WarpgroupEmulator, RegistersOfABlockAreLimited) {
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

/// Matrices that threads store as fragments become tiles.
TEST(WarpgroupEmulator, StoresFragments) {
  WarpgroupEmulator::run(groups(1), [](Block& block) {
    const GroupRows<64, 64> tile{0}, turned{8192};
    const int lane = block.thread() % 32, row = block.thread() / 32 * 16;
    std::uint32_t r[4];
    for (int i = 0; i < 4; ++i) {  // tiles 8 i … 8 i + 7 of columns, rows g of the warp
      const auto number = [&](int j) {
        return static_cast<float>((row + lane / 4) * 16 + 8 * i + lane % 4 * 2 + j);
      };
      r[i] = static_cast<std::uint32_t>(block.pack<Fp16>(number(0), number(1)));
    }
    block.store_matrices(tile.at(row + lane % 8, lane / 8), r);
    block.store_matrices_transposed(turned.at(row + lane % 8, lane / 8), r);
    block.barrier();
    for (int column = 0; column < 32; column += 4) {
      const auto piece = static_cast<std::uint32_t>(column % 8 * 2);
      float pair[2];
      std::uint16_t found[4];
      block.load_pair(pair, tile.at(row + lane % 8, column / 8) + piece);
      std::memcpy(found, pair, 8);
      for (int j = 0; j < 4; ++j)
        ASSERT_EQ(found[j], Fp16(static_cast<float>((row + lane % 8) * 16 + column + j)).bits);
      block.load_pair(pair, turned.at(row + lane % 8, column / 8) + piece);
      std::memcpy(found, pair, 8);
      for (int j = 0; j < 4; ++j)
        ASSERT_EQ(
            found[j],
            Fp16(static_cast<float>((row + column % 8 + j) * 16 + column / 8 * 8 + lane % 8)).bits);
    }
  });
}

/// Threads store sums, and one of them adds them to global memory; `forget` leaves one step out.
enum class Forget { nothing, publishing, reading, sending };
std::string send(std::vector<float>& to, Forget forget) {
  unsigned turn = 0;
  return failure(groups(1), [&](Block& block) {
    const auto mine = 16 * static_cast<std::uint32_t>(block.thread());
    for (int round = 0; round < 2; ++round) {
      const auto x = static_cast<float>(block.thread() + 1000 * round);
      block.store_sums(mine, {x, x + 0.25F, x + 0.5F, x + 0.75F});
      if (forget != Forget::publishing) block.publish_to_products();
      block.barrier();
      if (block.thread() == 0) {
        block.send_sums(to.data(), 0, 2048, round > 0);
        if (forget != Forget::reading) block.await_read();
      }
      block.barrier();
    }
    if (block.thread() == 0) {
      if (forget != Forget::sending) block.await_sent();
      const float before = to[4];
      block.release(&turn, 1);
      EXPECT_TRUE(std::isnan(before));
      if (forget == Forget::sending) {
        EXPECT_TRUE(std::isnan(to[4]));
        block.await_sent();
      }
    }
  });
}

TEST(WarpgroupEmulator, SendsSumsToGlobalMemory) {
  for (const Forget forget : {Forget::nothing, Forget::sending}) {
    std::vector<float> to(512, std::nanf(""));
    EXPECT_EQ(send(to, forget), "");
    for (std::size_t i = 0; i < to.size(); ++i)
      ASSERT_EQ(to[i],
                2.0F * static_cast<float>(i / 4) + 1000.0F + 0.5F * static_cast<float>(i % 4));
  }
  std::vector<float> to(512);
  EXPECT_NE(send(to, Forget::publishing).find("did not publish"), std::string::npos);
  EXPECT_NE(send(to, Forget::reading).find("without having waited for it"), std::string::npos);
}

}  // namespace
}  // namespace trireme::testing

#endif
