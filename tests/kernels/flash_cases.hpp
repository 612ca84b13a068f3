#pragma once

#include <trireme/base/text.hpp>
#include <trireme/kernels/attention.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/attention_runs.hpp"
#include "reference/rounded_attention.hpp"
#include "support/device_array.hpp"
#include "support/emulated_attention.hpp"

/// Compares the emulated tensor-core kernels with the definition for all head sizes and types.
namespace trireme::kernels::flash_cases {

using attention_runs::expect_within;
using attention_runs::some_dropout;
using testing::EmulatedAttention;
using testing::EmulatedRun;
using testing::uniform;

inline std::string describe(const AttentionShape& s, const AttentionDropout& dropout) {
  return text("B ", s.batch, " S ", s.sequence, " H ", s.heads, " Hkv ", s.key_value_heads,
              " before ", s.heads_before, s.causal ? " causal" : " full", " window ", s.window,
              " dropout ", dropout.rate);
}

template <class Type, int size>
struct Case {
  using T = Type;
  static constexpr int head_size = size;
  static constexpr double unit = std::is_same_v<T, Bf16> ? 1.0 / 256.0 : 1.0 / 2048.0;
};

template <class C>
class FlashFixture : public ::testing::Test {
 protected:
  using Numbers = std::vector<typename C::T>;
  using Kernels = EmulatedAttention<typename C::T, C::head_size>;

  static Numbers input(const AttentionShape& s) {
    return uniform<typename C::T>(s.tokens() * s.qkv_columns(), 1);
  }
  static Numbers gradient(const AttentionShape& s) {
    return uniform<typename C::T>(s.tokens() * s.heads * C::head_size, 2);
  }

  static void check(const AttentionShape& s, const AttentionDropout& dropout) {
    SCOPED_TRACE(describe(s, dropout));
    const auto qkv = input(s), grad = gradient(s);
    const reference::RoundedAttention reference({qkv.begin(), qkv.end()}, s, dropout, C::unit);
    Kernels emulated(qkv, s, dropout);
    emulated.forward();
    expect_within(emulated.o, reference.output(), "o");
    expect_within(emulated.logsumexp, reference.logsumexp(), "logsumexp");
    emulated.backward(grad);
    expect_within(emulated.dqkv, reference.gradient({grad.begin(), grad.end()}), "dqkv");
    EXPECT_EQ(emulated.grid.report.bank_conflicts, 0);
  }
};
using Cases = ::testing::Types<Case<Bf16, 16>, Case<Bf16, 32>, Case<Bf16, 64>, Case<Bf16, 80>,
                               Case<Bf16, 96>, Case<Bf16, 112>, Case<Bf16, 128>, Case<Bf16, 160>,
                               Case<Bf16, 256>, Case<Fp16, 64>, Case<Fp16, 128>, Case<Fp16, 192>>;

/// Bits of values, for comparisons that distinguish NaNs and signed zeros.
template <class T>
std::vector<std::uint16_t> bits(const std::vector<T>& numbers) {
  std::vector<std::uint16_t> result;
  for (const T x : numbers) result.push_back(x.bits);
  return result;
}

}  // namespace trireme::kernels::flash_cases
