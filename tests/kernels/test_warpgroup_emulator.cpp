#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#if !defined(__CUDACC__) && !defined(__HIPCC__)  // kernels for hosts alone

#include "kernels/warpgroup_cases.hpp"

/// The emulator's products, copies and barriers.
namespace trireme::testing {
namespace {

using namespace warpgroup_cases;

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
TEST(WarpgroupEmulator, TilesFollowThePtxIsa) {
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
TEST(WarpgroupEmulator, FillsBoxesWithZerosOutsideTheTensor) {
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
