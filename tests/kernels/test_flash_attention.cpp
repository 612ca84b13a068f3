#include <trireme/base/text.hpp>
#include <trireme/kernels/attention.hpp>
#include <trireme/kernels/flash_attention.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "reference/rounded_attention.hpp"
#include "support/device_array.hpp"

#if !defined(__CUDACC__)  // there the device runs them: test_flash_device.cpp
#include "support/emulated_attention.hpp"
#endif

/// The kernels of tensor cores, run by the emulator of blocks on the host.
namespace trireme::kernels {
namespace {

using testing::uniform;

TEST(FlashRule, TakesItsSizesAndAlignment) {
  const auto takes = [](const AttentionShape& shape, std::uintptr_t address = 64,
                        std::int64_t stride = 384) {
    return flash_takes(shape, {reinterpret_cast<const void*>(address)}, {stride});
  };
  AttentionShape s{2, 100, 4, 2, 64, true, 0.125, 2};
  for (const std::int64_t size : {64, 96, 128, 160}) {
    s.head_size = size;
    EXPECT_TRUE(takes(s)) << size;
  }
  for (const std::int64_t size : {1, 32, 80, 112, 192, 256}) {
    s.head_size = size;
    EXPECT_FALSE(takes(s)) << size;
  }
  s.head_size = 64;
  EXPECT_FALSE(takes(s, 72)) << "an array of 8 (mod 16)";
  EXPECT_FALSE(takes(s, 64, 388)) << "rows of 8 (mod 16)";
  s.scale = -0.125;
  EXPECT_FALSE(takes(s));
  s.scale = 0.125;
  s.sequence = std::int64_t{1} << 40;
  EXPECT_FALSE(takes(s));
}

TEST(FlashRule, WorkspaceHoldsSumsDeltasAndCounters) {
  const AttentionShape s{2, 100, 3, 1, 64};
  const FlashWorkspace parts(s);
  EXPECT_EQ(parts.sums, 2 * 3 * 128 * 64);
  EXPECT_EQ(parts.deltas, 2 * 3 * 100);
  EXPECT_EQ(parts.counters, 2 * 3 * 5);
  EXPECT_EQ(attention_workspace_elements<Bf16>(s), parts.elements());
  EXPECT_EQ(attention_workspace_elements<Fp16>({2, 0, 3, 1, 64}), 6)
      << "counters that no one reads";
  EXPECT_EQ(attention_workspace_elements<float>(s), parts.deltas);
}

TEST(FlashRule, TicketsGoThroughSectionsTurnByTurn) {
  const int planes = 7, turns = 3, section = 3;  // the last section has one plane
  std::vector<std::pair<int, int>> found;
  for (int ticket = 0; ticket < planes * turns; ++ticket) {
    const FlashTurn turn(ticket, planes, turns, section);
    found.emplace_back(turn.plane, turn.turn);
  }
  std::vector<std::pair<int, int>> expected;
  for (int first = 0; first < planes; first += section)
    for (int turn = 0; turn < turns; ++turn)
      for (int plane = first; plane < std::min(planes, first + section); ++plane)
        expected.emplace_back(plane, turn);
  EXPECT_EQ(found, expected);
}

TEST(AttentionBackends, PortableIsEverywhereAndTheSwitchHolds) {
  for (const DType type : {DType::fp64, DType::fp32, DType::bf16, DType::fp16}) {
    const AttentionBackend usual = attention_backend(type);
    EXPECT_TRUE(attention_backend_available(type, AttentionBackend::portable));
    EXPECT_TRUE(attention_backend_available(type, usual));
    set_attention_backend(type, AttentionBackend::portable);
    EXPECT_EQ(attention_backend(type), AttentionBackend::portable);
    set_attention_backend(type, usual);
    EXPECT_EQ(attention_backend(type), usual);
    if (!attention_backend_available(type, AttentionBackend::tensor_cores)) {
      EXPECT_THROW(set_attention_backend(type, AttentionBackend::tensor_cores), Error);
    }
  }
  EXPECT_FALSE(attention_backend_available(DType::fp32, AttentionBackend::tensor_cores));
}

#if !defined(__CUDACC__)

using testing::EmulatedAttention;
using testing::EmulatedRun;

AttentionDropout some_dropout() {
  return {0.3, {7, Purpose::attention_dropout, 3, 5}, 11, 2, 9};
}

std::string describe(const AttentionShape& s, const AttentionDropout& dropout) {
  return text("B ", s.batch, " S ", s.sequence, " H ", s.heads, " Hkv ", s.key_value_heads,
              " before ", s.heads_before, s.causal ? " causal" : " full", " dropout ",
              dropout.rate);
}

template <class T>
void expect_within(const std::vector<T>& found, const reference::Bounded& expected,
                   const char* what) {
  ASSERT_EQ(found.size(), expected.values.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_LE(std::abs(static_cast<double>(found[i]) - expected.values[i]), expected.bounds[i])
        << what << " " << i << " is " << static_cast<double>(found[i]) << ", expected "
        << expected.values[i];
}

template <class Type, int size>
struct Case {
  using T = Type;
  static constexpr int head_size = size;
  static constexpr double unit = std::is_same_v<T, Bf16> ? 1.0 / 256.0 : 1.0 / 2048.0;
};

template <class C>
class FlashAttention : public ::testing::Test {
 protected:
  using T = typename C::T;
  static constexpr int K = C::head_size;
  using Emulated = EmulatedAttention<T, K>;

  static std::vector<T> input(const AttentionShape& s) {
    return uniform<T>(s.tokens() * s.qkv_columns(), 1);
  }
  static std::vector<T> gradient(const AttentionShape& s) {
    return uniform<T>(s.tokens() * s.heads * K, 2);
  }

  static void check(const AttentionShape& s, const AttentionDropout& dropout) {
    SCOPED_TRACE(describe(s, dropout));
    const auto qkv = input(s), grad = gradient(s);
    const reference::RoundedAttention reference({qkv.begin(), qkv.end()}, s, dropout, C::unit);
    Emulated emulated(qkv, s, dropout);
    emulated.forward();
    expect_within(emulated.o, reference.output(), "o");
    expect_within(emulated.logsumexp, reference.logsumexp(), "logsumexp");
    emulated.backward(grad);
    expect_within(emulated.dqkv, reference.gradient({grad.begin(), grad.end()}), "dqkv");
    EXPECT_EQ(emulated.bank_conflicts, 0);
  }
};
using Cases = ::testing::Types<Case<Bf16, 64>, Case<Bf16, 96>, Case<Bf16, 128>, Case<Bf16, 160>,
                               Case<Fp16, 64>, Case<Fp16, 96>, Case<Fp16, 128>, Case<Fp16, 160>>;
TYPED_TEST_SUITE(FlashAttention, Cases);

/// Sequences within a block, not a whole number of blocks, of several blocks of queries and keys.
TYPED_TEST(FlashAttention, AgreesWithTheDefinition) {
  this->check({1, 1, 1, 1, TypeParam::head_size}, {});
  this->check({2, 37, 1, 1, TypeParam::head_size}, {});
  this->check({1, 150, 2, 1, TypeParam::head_size}, {});
  this->check({1, 131, 1, 1, TypeParam::head_size, false}, {});
}

/// Sequences that are and that are not whole numbers of Philox' blocks.
TYPED_TEST(FlashAttention, DropsWhatThePortableKernelDrops) {
  this->check({1, 36, 2, 1, TypeParam::head_size, false}, some_dropout());
  this->check({1, 67, 1, 1, TypeParam::head_size}, some_dropout());
}

#endif

}  // namespace
}  // namespace trireme::kernels
