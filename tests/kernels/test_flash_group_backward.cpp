#include <trireme/kernels/attention.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#if !defined(__CUDACC__)  // there the device runs them: test_flash_device.cpp
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
    EXPECT_EQ(emulated.report.bank_conflicts, 0);
  }
};
using GroupCases =
    ::testing::Types<Case<Bf16, 64>, Case<Bf16, 96>, Case<Bf16, 128>, Case<Bf16, 192>,
                     Case<Bf16, 256>, Case<Fp16, 64>, Case<Fp16, 192>>;
TYPED_TEST_SUITE(FlashGroupGradient, GroupCases);

/// Sequences within a block, with a partial last block, and of several blocks of queries and keys.
TYPED_TEST(FlashGroupGradient, AgreesWithTheDefinition) {
  constexpr int K = TypeParam::head_size;
  this->check({1, 1, 1, 1, K});
  this->check({2, 37, 3, 1, K});
  this->check({1, 300, 1, 1, K});
  this->check({1, 131, 1, 1, K, false});
}

}  // namespace
}  // namespace trireme::kernels

#endif
