#include <trireme/kernels/attention.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/attention_runs.hpp"
#include "kernels/cases.hpp"
#include "reference/rounded_attention.hpp"
#include "support/device_array.hpp"

/// Attention to the last tokens only, by the portable kernels on hosts. test_attention.cpp has
/// shapes with windows too; tensor cores: test_flash_window.cpp.
namespace trireme::kernels {
namespace {

using namespace attention_runs;

AttentionShape with_window(AttentionShape s, std::int64_t window) {
  s.window = window;
  return s;
}

template <class T>
class AttentionWindow : public ::testing::Test {};
TYPED_TEST_SUITE(AttentionWindow, AllTypes);

TYPED_TEST(AttentionWindow, AWideWindowHasTheBitsOfNone) {
  using T = TypeParam;
  for (const AttentionShape& s : {AttentionShape{2, 130, 4, 2, 24}, {1, 64, 2, 2, 64}})
    for (const AttentionDropout& dropout : {AttentionDropout{}, some_dropout()})
      for (const std::int64_t window : {s.sequence, s.sequence + 1, std::int64_t{1} << 40}) {
        const AttentionShape wide = with_window(s, window);
        const auto qkv = random_qkv<T>(s), grad = random_gradient<T>(s);
        const auto found = run_forward(qkv, wide, dropout), all = run_forward(qkv, s, dropout);
        expect_same_bits(found.o, all.o);
        expect_same_bits(found.logsumexp, all.logsumexp);
        expect_same_bits(run_backward(qkv, grad, wide, dropout),
                         run_backward(qkv, grad, s, dropout));
      }
}

/// Blocks that no query sees are not read: the blocks of 64 (on devices 32) tokens from 128 on see
/// tokens from 128 − 32 on, and tokens before 64 do not affect them. Nor does the gradient reach
/// keys that are seen only by queries without a gradient.
TYPED_TEST(AttentionWindow, SkipsBlocksOutsideTheWindow) {
  using T = TypeParam;
  const AttentionShape s{1, 300, 2, 1, 16, true, 0.0, 0, 0, 33};
  const auto clean = random_qkv<T>(s), grad = random_gradient<T>(s);
  auto qkv = clean;
  for (std::int64_t t = 0; t < 64; ++t)
    for (std::int64_t c = 0; c < s.qkv_columns(); ++c) qkv[at(t * s.qkv_columns() + c)] = T(NAN);
  const auto rows_from = [&](const std::vector<T>& x, std::int64_t first) {
    const auto width = static_cast<std::int64_t>(x.size()) / s.sequence;
    return std::vector<T>(x.begin() + first * width, x.end());
  };
  const auto o = run_forward(qkv, s).o;
  EXPECT_TRUE(std::isnan(static_cast<float>(o[0])));
  expect_same_bits(rows_from(o, 128), rows_from(run_forward(clean, s).o, 128));
  expect_same_bits(rows_from(run_backward(qkv, grad, s), 128),
                   rows_from(run_backward(clean, grad, s), 128));
}

/// At every position, with caches whose rows outside the window are NaN.
TYPED_TEST(AttentionWindow, DecodeMatchesEachRowOfForward) {
  using T = TypeParam;
  const double u = std::is_same_v<T, Bf16>   ? 1.0 / 256.0
                   : std::is_same_v<T, Fp16> ? 1.0 / 2048.0
                                             : std::numeric_limits<T>::epsilon() / 2;
  const double u_of_sums = std::numeric_limits<Accumulate<T>>::epsilon() / 2;
  for (const AttentionShape& of :
       {AttentionShape{1, 100, 4, 2, 16}, {2, 37, 3, 2, 8, true, 0.0, 2, 1}})
    for (const std::int64_t window : {1, 2, 20, 65}) {
      const AttentionShape s = with_window(of, window);
      const auto qkv = random_qkv<T>(s);
      const auto o = run_forward(qkv, s).o;
      const std::int64_t columns = s.heads * s.head_size, shared = s.key_value_heads * s.head_size;
      for (std::int64_t position = 0; position < s.sequence; ++position) {
        std::vector<T> q, k(at(s.batch * s.sequence * shared), T(NAN)), v(k);
        for (std::int64_t b = 0; b < s.batch; ++b) {
          const auto row = [&](std::int64_t i) {
            return qkv.begin() + (b * s.sequence + i) * s.qkv_columns();
          };
          q.insert(q.end(), row(position), row(position) + columns);
          for (std::int64_t i = std::max<std::int64_t>(0, position + 1 - window); i <= position;
               ++i) {
            const std::int64_t to = (b * s.sequence + i) * shared;
            std::copy_n(row(i) + columns, shared, k.begin() + to);
            std::copy_n(row(i) + columns + shared, shared, v.begin() + to);
          }
        }
        const DeviceArray<T> dq(q), dk(k), dv(v), result(s.batch * columns);
        std::vector<std::int32_t> each(at(s.batch));
        std::iota(each.begin(), each.end(), 0);
        const DeviceArray<std::int32_t> texts(each);
        const DeviceArray<std::int32_t> positions(
            std::vector<std::int32_t>(at(s.batch), static_cast<std::int32_t>(position)));
        attention_decode<T>(Exec{}, result.matrix(s.batch, columns), dq.matrix(s.batch, columns),
                            dk.cube(s.batch, s.sequence, shared),
                            dv.cube(s.batch, s.sequence, shared), {texts.flat(), positions.flat()},
                            s);
        fence(Exec{}, "test");
        const auto found = result.values();
        // Both are off by twice δ (attention_runs.hpp) and by a rounding of numbers up to 1.
        const double bound = 4.0 * relative_error(s, u_of_sums) + 2.0 * u;
        for (std::int64_t b = 0; b < s.batch; ++b)
          for (std::int64_t c = 0; c < columns; ++c)
            ASSERT_NEAR(static_cast<double>(found[at(b * columns + c)]),
                        static_cast<double>(o[at((b * s.sequence + position) * columns + c)]),
                        bound)
                << describe(s) << " position " << position;
      }
    }
}

template <class T>
class NarrowAttentionWindow : public ::testing::Test {};
TYPED_TEST_SUITE(NarrowAttentionWindow, NarrowTypes);

/// Within the bounds of kernels that round more. 33 and 70 cross the edge of a block.
TYPED_TEST(NarrowAttentionWindow, MatchesTheDefinition) {
  using T = TypeParam;
  const double unit = std::is_same_v<T, Bf16> ? 1.0 / 256.0 : 1.0 / 2048.0;
  for (const AttentionShape& of :
       {AttentionShape{1, 150, 4, 2, 24}, {2, 67, 3, 2, 16, true, 0.0, 2, 1}})
    for (const std::int64_t window :
         {std::int64_t{1}, std::int64_t{2}, std::int64_t{33}, std::int64_t{70}, of.sequence - 1})
      for (const AttentionDropout& dropout : {AttentionDropout{}, some_dropout()}) {
        const AttentionShape s = with_window(of, window);
        SCOPED_TRACE(describe(s));
        const auto qkv = random_qkv<T>(s), grad = random_gradient<T>(s);
        const reference::RoundedAttention reference({qkv.begin(), qkv.end()}, s, dropout, unit);
        const auto found = run_forward(qkv, s, dropout);
        expect_within(found.o, reference.output(), "o");
        expect_within(found.logsumexp, reference.logsumexp(), "logsumexp");
        expect_within(run_backward(qkv, grad, s, dropout),
                      reference.gradient({grad.begin(), grad.end()}), "dqkv");
      }
}

}  // namespace
}  // namespace trireme::kernels
