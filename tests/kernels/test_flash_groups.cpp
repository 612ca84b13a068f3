#include <trireme/kernels/attention.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#if !defined(__CUDACC__) && !defined(__HIPCC__)  // see test_flash_device.cpp
#include "kernels/flash_cases.hpp"
#include "support/emulated_group_attention.hpp"

/// The kernels of warpgroups, run by their emulator on the host, against the definition.
namespace trireme::kernels {
namespace {

using namespace flash_cases;
using testing::EmulatedGroupAttention;

template <class C>
class FlashGroups : public ::testing::Test {
 protected:
  using Numbers = std::vector<typename C::T>;
  using Kernels = EmulatedGroupAttention<typename C::T, C::head_size>;

  static Numbers input(const AttentionShape& s) {
    return uniform<typename C::T>(s.tokens() * s.qkv_columns(), 1);
  }
  static void check(const AttentionShape& s, const AttentionDropout& dropout = {},
                    std::int64_t padding = 0) {
    SCOPED_TRACE(describe(s, dropout));
    check(s, dropout, input(s), padding);
  }
  static void check(const AttentionShape& s, const AttentionDropout& dropout, const Numbers& qkv,
                    std::int64_t padding = 0) {
    const reference::RoundedAttention reference({qkv.begin(), qkv.end()}, s, dropout, C::unit);
    Kernels emulated(qkv, s, dropout, {}, padding);
    emulated.forward();
    expect_within(emulated.o, reference.output(), "o");
    expect_within(emulated.logsumexp, reference.logsumexp(), "logsumexp");
    EXPECT_EQ(emulated.grid.report.bank_conflicts, 0);
  }
};
using GroupForwardCases =
    ::testing::Types<Case<Bf16, 64>, Case<Bf16, 96>, Case<Bf16, 128>, Case<Bf16, 192>,
                     Case<Bf16, 256>, Case<Fp16, 64>, Case<Fp16, 192>>;
TYPED_TEST_SUITE(FlashGroups, GroupForwardCases);

/// Sequences within a block, with a partial last block, and of several blocks of queries and keys.
TYPED_TEST(FlashGroups, MatchTheDefinition) {
  constexpr int K = TypeParam::head_size;
  this->check({1, 1, 1, 1, K});
  this->check({2, 37, 3, 1, K}, {}, 8);
  this->check({1, 300, 2, 1, K});
  this->check({1, 131, 1, 1, K, false});
}

/// Sequences that are, and are not, a whole number of Philox blocks.
TYPED_TEST(FlashGroups, DropoutMatchesThePortableKernel) {
  constexpr int K = TypeParam::head_size;
  this->check({1, 36, 2, 1, K, false}, some_dropout());
  this->check({1, 135, 1, 1, K}, some_dropout());
}

/// Windows within a tile, across blocks of keys and of queries; parts of groups.
TYPED_TEST(FlashGroups, RespectTheWindow) {
  constexpr int K = TypeParam::head_size;
  for (const std::int64_t window : {1, 70}) this->check({1, 270, 1, 1, K, true, 0.0, 0, 0, window});
  this->check({1, 134, 2, 2, K, true, 0.0, 2, 1, 40}, some_dropout());
}

/// Scores that grow with the key by far more than 2^8, so that references change in every block.
TYPED_TEST(FlashGroups, RescaleGrowingScores) {
  using T = typename TypeParam::T;
  constexpr int K = TypeParam::head_size;
  const AttentionShape s{1, 400, 1, 1, K, false, 1.0};
  auto qkv = this->input(s);
  for (std::int64_t t = 0; t < s.sequence; ++t)
    for (std::int64_t d = 0; d < K; ++d) {
      T* row = qkv.data() + t * s.qkv_columns();
      row[d] = T(d % 2 == 0 ? 0.25 : -0.25);
      row[K + d] = T((d % 2 == 0 ? 0.03125 : -0.03125) * static_cast<double>(t / 8));
    }
  this->check(s, {}, qkv);
}

/// No bit depends on when copies arrive, on the order of threads and blocks, or on the number of
/// blocks of threads; and no order has races or waits without end.
TYPED_TEST(FlashGroups, AnyExecutionOrderHasTheSameBits) {
  const AttentionShape s{1, 270, 2, 1, TypeParam::head_size};
  const auto qkv = this->input(s);
  typename TestFixture::Kernels first(qkv, s, some_dropout(), {4, false, false});
  first.forward();
  for (const EmulatedRun how : {EmulatedRun{1, true, false}, {2, false, true}, {4, true, true}}) {
    typename TestFixture::Kernels emulated(qkv, s, some_dropout(), how);
    emulated.forward();
    EXPECT_EQ(bits(emulated.o), bits(first.o));
    EXPECT_EQ(emulated.logsumexp, first.logsumexp);
  }
}

/// NaNs from overflow must reach the loss scaling, and no others.
TYPED_TEST(FlashGroups, NaNsPropagate) {
  const AttentionShape s{1, 40, 1, 1, TypeParam::head_size};
  auto qkv = this->input(s);
  qkv[5] = typename TypeParam::T(std::nan(""));  // of query 0, which sees only key 0
  typename TestFixture::Kernels emulated(qkv, s, {});
  emulated.forward();
  EXPECT_TRUE(std::isnan(static_cast<float>(emulated.o[3])));
  EXPECT_FALSE(std::isnan(static_cast<float>(emulated.o[TypeParam::head_size])));
}

/// Blocks of keys that a window hides are skipped; instructions of tensor cores are counted.
TYPED_TEST(FlashGroups, ComputeOnlyVisibleBlocks) {
  constexpr int K = TypeParam::head_size;
  using Tile = GroupForwardTile<K>;
  const auto products = [&](std::int64_t sequence, std::int64_t window) {
    const AttentionShape s{1, sequence, 1, 1, K, true, 0.0, 0, 0, window};
    typename TestFixture::Kernels emulated(this->input(s), s, {});
    emulated.forward();
    return emulated.grid.report.products;
  };
  // Groups of 64 queries see whole blocks of keys. Those beyond the sequence take one.
  const auto blocks = [&](std::int64_t sequence, std::int64_t window) {
    std::int64_t sum = 0;
    for (std::int64_t q0 = 0; q0 < sequence; q0 += Tile::queries)
      for (std::int64_t q = q0; q < q0 + Tile::queries; q += Tile::group_queries) {
        const std::int64_t end = std::min<std::int64_t>(q + Tile::group_queries, sequence);
        const std::int64_t first = window == 0 ? 0 : std::max<std::int64_t>(0, q - window + 1);
        sum += q < sequence ? (end + Tile::keys - 1) / Tile::keys - first / Tile::keys : 1;
      }
    return sum;
  };
  const std::int64_t each = (K + Tile::keys) / 16;
  EXPECT_EQ(products(512, 0), blocks(512, 0) * each);
  EXPECT_EQ(products(500, 100), blocks(500, 100) * each);
  EXPECT_LT(blocks(500, 100), blocks(500, 0));
}

}  // namespace
}  // namespace trireme::kernels

#endif
