#include <trireme/kernels/attention.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#if !defined(__CUDACC__) && !defined(__HIPCC__)  // see test_flash_device.cpp
#include "kernels/flash_cases.hpp"

/// Sliding windows in the tensor-core kernels, run by the emulator of blocks on the host.
namespace trireme::kernels {
namespace {

using namespace flash_cases;

AttentionShape windowed(std::int64_t sequence, std::int64_t heads, int head_size,
                        std::int64_t window) {
  return {1, sequence, heads, 1, head_size, true, 0.0, 0, 0, window};
}

template <class C>
class FlashWindow : public FlashFixture<C> {};
TYPED_TEST_SUITE(FlashWindow, Cases);

/// Windows within a tile, across blocks of keys and of queries, and of all tokens but one.
TYPED_TEST(FlashWindow, MatchesTheDefinition) {
  constexpr int K = TypeParam::head_size;
  for (const std::int64_t window : {1, 2, 70, 149}) this->check(windowed(150, 1, K, window), {});
  this->check(windowed(37, 2, K, 9), some_dropout());
  this->check({1, 134, 2, 2, K, true, 0.0, 2, 1, 40}, some_dropout());  // parts of groups
}

TYPED_TEST(FlashWindow, AWideWindowHasTheBitsOfNone) {
  constexpr int K = TypeParam::head_size;
  const auto qkv = this->input(windowed(132, 1, K, 0)),
             grad = this->gradient(windowed(132, 1, K, 0));
  typename TestFixture::Kernels all(qkv, windowed(132, 1, K, 0), {});
  all.forward();
  all.backward(grad);
  for (const std::int64_t window : {132, 1000}) {
    typename TestFixture::Kernels wide(qkv, windowed(132, 1, K, window), {});
    wide.forward();
    wide.backward(grad);
    EXPECT_EQ(bits(wide.o), bits(all.o));
    EXPECT_EQ(wide.logsumexp, all.logsumexp);
    EXPECT_EQ(bits(wide.dqkv), bits(all.dqkv));
  }
}

/// Neither the order of blocks nor the number that run at a time changes a bit. Blocks of keys that
/// begin the sums of later queries wait for none.
TYPED_TEST(FlashWindow, AnyExecutionOrderHasTheSameBits) {
  const AttentionShape s = windowed(270, 2, TypeParam::head_size, 100);
  const auto qkv = this->input(s), grad = this->gradient(s);
  std::vector<std::vector<std::uint16_t>> outputs, gradients;
  for (const EmulatedRun how : {EmulatedRun{4, false, false}, {1, true, false}, {4, true, true}}) {
    typename TestFixture::Kernels emulated(qkv, s, {}, how);
    emulated.forward();
    emulated.backward(grad);
    outputs.push_back(bits(emulated.o));
    gradients.push_back(bits(emulated.dqkv));
  }
  for (std::size_t i = 1; i < outputs.size(); ++i) {
    EXPECT_EQ(outputs[i], outputs[0]) << i;
    EXPECT_EQ(gradients[i], gradients[0]) << i;
  }
}

/// Blocks of keys that a window hides from all queries of a block are skipped: NaNs in them would
/// spread to others, even with probability 0. Queries from 256 on and keys from 128 on see nothing
/// of the tokens before 64, and have no block in common with them.
TYPED_TEST(FlashWindow, SkipsBlocksOutsideTheWindow) {
  using T = typename TypeParam::T;
  constexpr int K = TypeParam::head_size;
  const AttentionShape s = windowed(270, 1, K, 20);
  const auto clean = this->input(s), grad = this->gradient(s);
  auto qkv = clean;
  for (std::size_t i = 0; i < 64 * 3 * K; ++i) qkv[i] = T(NAN);
  typename TestFixture::Kernels found(qkv, s, {}), expected(clean, s, {});
  for (auto* kernels : {&found, &expected}) {
    kernels->forward();
    kernels->backward(grad);
  }
  EXPECT_TRUE(std::isnan(static_cast<float>(found.o[0])));
  const auto rows_from = [](const std::vector<T>& x, std::size_t first) {
    return bits(std::vector<T>(x.begin() + static_cast<std::ptrdiff_t>(first), x.end()));
  };
  EXPECT_EQ(rows_from(found.o, 128 * K), rows_from(expected.o, 128 * K));
  EXPECT_EQ(rows_from(found.dqkv, 256 * 3 * K), rows_from(expected.dqkv, 256 * 3 * K));
}

/// Twice the tokens cost twice as much, not four times as much. 384 is a multiple of all blocks.
TYPED_TEST(FlashWindow, CostIsLinearInTheSequence) {
  constexpr int K = TypeParam::head_size;
  const auto operations = [&](std::int64_t sequence) {
    const AttentionShape s = windowed(sequence, 1, K, 32);
    typename TestFixture::Kernels emulated(this->input(s), s, {});
    emulated.forward();
    emulated.backward(this->gradient(s));
    return emulated.grid.report.operations;
  };
  const std::int64_t first = operations(384), second = operations(768), third = operations(1152);
  EXPECT_EQ(third - second, second - first);
}

}  // namespace
}  // namespace trireme::kernels

#endif
