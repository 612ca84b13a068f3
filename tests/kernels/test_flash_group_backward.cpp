#include <trireme/kernels/attention.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#if !defined(__CUDACC__) && !defined(__HIPCC__)  // see test_flash_device.cpp
#include "kernels/flash_cases.hpp"
#include "support/emulated_group_attention.hpp"

/// The backward kernel of warpgroups, run by their emulator on the host, against the definition.
namespace trireme::kernels {
namespace {

using namespace flash_cases;
using testing::EmulatedGroupAttention;

template <class C>
class FlashGroupGradient : public ::testing::Test {
 protected:
  using Numbers = std::vector<typename C::T>;
  using Kernels = EmulatedGroupAttention<typename C::T, C::head_size>;

  static Numbers input(const AttentionShape& s) {
    return uniform<typename C::T>(s.tokens() * s.qkv_columns(), 1);
  }
  static Numbers gradient(const AttentionShape& s) {
    return uniform<typename C::T>(s.tokens() * s.heads * C::head_size, 2);
  }
  static void check(const AttentionShape& s, const AttentionDropout& dropout = {},
                    EmulatedRun how = {}) {
    SCOPED_TRACE(describe(s, dropout));
    const auto qkv = input(s), grad = gradient(s);
    const reference::RoundedAttention reference({qkv.begin(), qkv.end()}, s, dropout, C::unit);
    Kernels emulated(qkv, s, dropout, how);
    emulated.forward();
    emulated.backward(grad);
    expect_within(emulated.dqkv, reference.gradient({grad.begin(), grad.end()}), "dqkv");
    EXPECT_EQ(emulated.grid.report.bank_conflicts, 0);
  }
};
using GroupGradientCases = ::testing::Types<Case<Bf16, 64>, Case<Bf16, 96>, Case<Bf16, 128>,
                                            Case<Bf16, 192>, Case<Bf16, 256>, Case<Fp16, 128>>;
TYPED_TEST_SUITE(FlashGroupGradient, GroupGradientCases);

/// Sequences within a block, with a partial last block, and of several blocks of queries and keys.
TYPED_TEST(FlashGroupGradient, MatchesTheDefinition) {
  constexpr int K = TypeParam::head_size;
  this->check({1, 1, 1, 1, K});
  this->check({2, 37, 3, 1, K});
  this->check({1, 300, 1, 1, K});
  this->check({1, 131, 1, 1, K, false});
}

/// Sequences that are, and are not, a whole number of Philox blocks.
TYPED_TEST(FlashGroupGradient, DropoutMatchesThePortableKernel) {
  constexpr int K = TypeParam::head_size;
  this->check({1, 36, 2, 1, K, false}, some_dropout());
  this->check({1, 135, 1, 1, K}, some_dropout());
}

/// Windows within a block of keys and across several; parts of groups.
TYPED_TEST(FlashGroupGradient, RespectsTheWindow) {
  constexpr int K = TypeParam::head_size;
  for (const std::int64_t window : {1, 70}) this->check({1, 270, 1, 1, K, true, 0.0, 0, 0, window});
  this->check({1, 134, 2, 2, K, true, 0.0, 2, 1, 40}, some_dropout());
}

/// No bit depends on when copies arrive, on the order of threads and blocks, or on the number of
/// blocks that run at a time; and no order has races or waits without end. Three blocks of keys add
/// to the same sums of queries.
TYPED_TEST(FlashGroupGradient, AnyExecutionOrderHasTheSameBits) {
  const AttentionShape s{1, 270, 2, 1, TypeParam::head_size};
  const auto qkv = this->input(s), grad = this->gradient(s);
  std::vector<std::uint16_t> first;
  for (const EmulatedRun how : {EmulatedRun{4, false, false}, {1, true, false}, {4, true, true}}) {
    typename TestFixture::Kernels emulated(qkv, s, some_dropout(), how);
    emulated.forward();
    emulated.backward(grad);
    if (first.empty()) first = bits(emulated.dqkv);
    EXPECT_EQ(bits(emulated.dqkv), first);
  }
}

/// Rows may be longer than their heads, and what lies between them is not written.
TYPED_TEST(FlashGroupGradient, KeepsThePaddingOfRows) {
  const AttentionShape s{1, 70, 1, 1, TypeParam::head_size};
  constexpr std::int64_t padding = 8;
  const auto qkv = this->input(s), grad = this->gradient(s);
  typename TestFixture::Kernels dense(qkv, s, {}), padded(qkv, s, {}, {}, padding);
  for (auto* each : {&dense, &padded}) {
    each->forward();
    each->backward(grad);
  }
  const std::int64_t columns = s.qkv_columns();
  for (std::int64_t t = 0; t < s.sequence; ++t)
    for (std::int64_t c = 0; c < columns + padding; ++c) {
      const auto found = padded.dqkv[static_cast<std::size_t>(t * (columns + padding) + c)];
      if (c < columns)
        ASSERT_EQ(found.bits, dense.dqkv[static_cast<std::size_t>(t * columns + c)].bits);
      else
        ASSERT_TRUE(std::isnan(static_cast<float>(found)));
    }
}

/// NaNs from overflow must reach the loss scaling.
TYPED_TEST(FlashGroupGradient, NaNsPropagate) {
  const AttentionShape s{1, 40, 1, 1, TypeParam::head_size};
  const auto qkv = this->input(s);
  auto grad = this->gradient(s);
  grad[5] = typename TypeParam::T(std::nan(""));  // of query 0, which sees only key 0
  typename TestFixture::Kernels emulated(qkv, s, {});
  emulated.forward();
  emulated.backward(grad);
  constexpr std::int64_t K = TypeParam::head_size;
  EXPECT_TRUE(std::isnan(static_cast<float>(emulated.dqkv[3])));           // query 0
  EXPECT_TRUE(std::isnan(static_cast<float>(emulated.dqkv[2 * K + 5])));   // value 0
  EXPECT_FALSE(std::isnan(static_cast<float>(emulated.dqkv[3 * K + 3])));  // query 1
}

/// Blocks of queries that do not see a block of keys cost nothing; instructions of tensor cores are
/// counted.
TYPED_TEST(FlashGroupGradient, ComputesOnlyVisibleBlocks) {
  constexpr int K = TypeParam::head_size;
  using Tile = GroupBackwardTile<K>;
  const auto products = [&](std::int64_t sequence, std::int64_t window) {
    const AttentionShape s{1, sequence, 1, 1, K, true, 0.0, 0, 0, window};
    typename TestFixture::Kernels emulated(this->input(s), s, {});
    emulated.backward(this->gradient(s));  // of NaNs
    return emulated.grid.report.products;
  };
  // Per step and group of warps: scores and their gradients of 64 keys, gradients of keys and of
  // values over the queries, that of queries over the keys. A block computes its last scores twice.
  constexpr std::int64_t scores = 2 * K / 16, rest = 2 * (2 * Tile::queries + Tile::keys) / 16;
  const auto expected = [&](std::int64_t sequence, std::int64_t window) {
    std::int64_t sum = 0;
    for (std::int64_t key = 0; key < sequence; key += Tile::keys) {
      const std::int64_t end =
          window == 0 ? sequence : std::min(sequence, key + Tile::keys + window - 1);
      const std::int64_t steps = (end + Tile::queries - 1) / Tile::queries - key / Tile::queries;
      sum += steps * (2 * scores + rest) + scores;
    }
    return sum;
  };
  EXPECT_EQ(products(300, 0), expected(300, 0));
  EXPECT_EQ(products(300, 90), expected(300, 90));
  EXPECT_LT(expected(300, 90), expected(300, 0));
}

}  // namespace
}  // namespace trireme::kernels

#endif
