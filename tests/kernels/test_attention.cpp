// The portable attention kernels against a naive reference in double, by finite differences, and
// with the same bits however batch and heads are split.
#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>
#include <trireme/kernels/attention.hpp>
#include <trireme/tensor/fence.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "kernels/attention_runs.hpp"
#include "kernels/cases.hpp"
#include "reference/attention.hpp"
#include "support/device_array.hpp"

namespace trireme::kernels {
namespace {

using namespace attention_runs;
using testing::DeviceArray;
using testing::uniform;

/// Odd and even lengths around the blocks, head sizes around the register tiles, grouped heads;
/// windows of one token, within a block, across blocks, and of all tokens but one; soft caps.
const AttentionShape attention_shapes[] = {{1, 1, 1, 1, 1},
                                           {2, 13, 1, 1, 1},
                                           {1, 13, 3, 3, 13},
                                           {2, 128, 2, 2, 16},
                                           {1, 65, 2, 1, 24},
                                           {1, 130, 4, 2, 64},
                                           {3, 67, 6, 2, 80},
                                           {1, 200, 1, 1, 128},
                                           {1, 63, 2, 2, 13, false},
                                           {2, 129, 4, 1, 32, false},
                                           {1, 64, 2, 2, 64, true, 0.5},
                                           {1, 192, 1, 1, 48, false, 2.0},
                                           {1, 13, 1, 1, 13, true, 0.0, 0, 0, 1},
                                           {2, 130, 2, 1, 16, true, 0.0, 0, 0, 2},
                                           {1, 200, 4, 2, 24, true, 0.0, 0, 0, 33},
                                           {1, 200, 3, 2, 16, true, 0.0, 2, 1, 70},
                                           {1, 193, 1, 1, 8, true, 0.5, 0, 0, 64},
                                           {1, 150, 2, 2, 32, true, 0.0, 0, 0, 149},
                                           {1, 130, 4, 2, 64, true, 0.0, 0, 0, 0, 1.0},
                                           {2, 67, 2, 1, 13, true, 0.0, 0, 0, 33, 1.0},
                                           {1, 63, 2, 2, 16, false, 0.0, 0, 0, 0, 1.0}};

template <class T>
class Attention : public ::testing::Test {};
TYPED_TEST_SUITE(Attention, WideTypes);

TYPED_TEST(Attention, ForwardMatchesTheDefinition) {
  using T = TypeParam;
  const double u = std::numeric_limits<T>::epsilon() / 2;
  for (const AttentionShape& s : attention_shapes)
    for (const AttentionDropout& dropout : {AttentionDropout{}, some_dropout()}) {
      const auto qkv = uniform<T>(s.tokens() * s.qkv_columns(), 1);
      const auto expected = reference::attention(qkv, s, dropout);
      const auto found = run_forward(qkv, s, dropout);
      // o = Σ p v with |v| ≤ 1 and Σ p = 1 (1/(1−rate) with dropout): 2 δ, one for p and one for
      // its sum.
      const double bound = 2.0 * relative_error(s, u) / (1.0 - dropout.rate);
      for (std::size_t i = 0; i < found.o.size(); ++i)
        ASSERT_NEAR(found.o[i], expected.o[i], bound) << describe(s) << " o " << i;
      for (std::size_t i = 0; i < found.logsumexp.size(); ++i)
        ASSERT_NEAR(found.logsumexp[i], expected.logsumexp[i],
                    relative_error(s, u) + 4.0 * u * std::abs(expected.logsumexp[i]))
            << describe(s) << " logsumexp " << i;
    }
}

TYPED_TEST(Attention, ForwardHandlesLargeScores) {
  using T = TypeParam;
  const AttentionShape s{1, 150, 1, 1, 16, true, 1000.0};  // exp(score) overflows both types
  const auto qkv = uniform<T>(s.tokens() * s.qkv_columns(), 1);
  for (const T value : run_forward(qkv, s).o) {
    ASSERT_TRUE(std::isfinite(value));
    ASSERT_LE(std::abs(value), T(1) + 200 * std::numeric_limits<T>::epsilon());
  }
}

TEST(AttentionBackward, MatchesFiniteDifferencesElementByElement) {
  for (const AttentionShape& s : {AttentionShape{2, 5, 2, 1, 3},
                                  {1, 7, 1, 1, 2, false},
                                  {2, 6, 2, 1, 3, true, 0.0, 0, 0, 2},
                                  {2, 6, 2, 1, 3, true, 0.0, 0, 0, 2, 0.5}})
    for (const AttentionDropout& dropout : {AttentionDropout{}, some_dropout()}) {
      const auto qkv = uniform<double>(s.tokens() * s.qkv_columns(), 1);
      const auto grad = uniform<double>(s.tokens() * s.heads * s.head_size, 2);
      const auto found = run_backward(qkv, grad, s, dropout);
      for (std::size_t i = 0; i < qkv.size(); ++i) {
        std::vector<double> direction(qkv.size());
        direction[i] = 1.0;
        // The loss is at most |grad|·|o| ~ 100, its fifth derivative too: 100 · 1e-12, times ten
        // for constants.
        ASSERT_NEAR(found[i], slope(qkv, grad, direction, s, dropout, 1e-3), 1e-9)
            << describe(s) << " element " << i;
      }
    }
}

TEST(AttentionBackward, MatchesFiniteDifferencesAlongRandomDirections) {
  for (const AttentionShape& s : attention_shapes)
    for (const AttentionDropout& dropout : {AttentionDropout{}, some_dropout()}) {
      const auto qkv = uniform<double>(s.tokens() * s.qkv_columns(), 1);
      const auto grad = uniform<double>(s.tokens() * s.heads * s.head_size, 2);
      const auto found = run_backward(qkv, grad, s, dropout);
      // Queries, keys and values separately, so that none hides an error of another.
      const std::int64_t ends[] = {0, s.heads * s.head_size,
                                   (s.heads + s.key_value_heads) * s.head_size, s.qkv_columns()};
      for (int part = 0; part < 3; ++part) {
        auto direction = uniform<double>(s.tokens() * s.qkv_columns(), 3);
        for (std::int64_t i = 0; i < s.tokens() * s.qkv_columns(); ++i) {
          const std::int64_t column = i % s.qkv_columns();
          if (column < ends[part] || column >= ends[part + 1]) direction[at(i)] = 0.0;
        }
        const double along = std::inner_product(found.begin(), found.end(), direction.begin(), 0.0);
        // Σ|grad||o| bounds the loss; scores move by up to c = scale·K·step along the direction,
        // hence c^4/30.
        const double size = static_cast<double>(grad.size());
        const double scale = s.scale == 0.0 ? 1.0 / std::sqrt(double(s.head_size)) : s.scale;
        const double speed = std::max(1.0, scale * static_cast<double>(s.head_size));
        const double step = 1e-3 / speed;
        const double bound = size * (std::pow(speed, 5) * std::pow(step, 4) + 4e-16 / step);
        ASSERT_NEAR(along, slope(qkv, grad, direction, s, dropout, step), bound)
            << describe(s) << " part " << part;
      }
    }
}

TEST(AttentionBackward, FloatMatchesDouble) {
  const double u = std::numeric_limits<float>::epsilon() / 2;
  for (const AttentionShape& s : attention_shapes)
    for (const AttentionDropout& dropout : {AttentionDropout{}, some_dropout()}) {
      const auto qkv = uniform<float>(s.tokens() * s.qkv_columns(), 1);
      const auto grad = uniform<float>(s.tokens() * s.heads * s.head_size, 2);
      const auto found = run_backward(qkv, grad, s, dropout);
      const auto expected = run_backward(std::vector<double>(qkv.begin(), qkv.end()),
                                         std::vector<double>(grad.begin(), grad.end()), s, dropout);
      // dv = Σ_i p grad, dq and dk = Σ scale p (dp − delta) k with |dp|, |delta| ≤ K/(1−rate). Rows
      // of p sum to 1, columns over all queries of a group to at most S·H/Hkv. Each term is off by
      // δ of p and by K u of dp.
      const auto size = static_cast<double>(s.head_size);
      const double scale = s.scale == 0.0 ? 1.0 / std::sqrt(size) : s.scale;
      const double terms = static_cast<double>(s.sequence * s.heads) / double(s.key_value_heads);
      const double largest = std::max(1.0, 2.0 * scale * size) / (1.0 - dropout.rate);
      const double bound = terms * largest * (3.0 * relative_error(s, u) + (size + terms) * u);
      double norm = 0.0, error = 0.0;
      for (std::size_t i = 0; i < found.size(); ++i) {
        ASSERT_NEAR(found[i], expected[i], bound) << describe(s) << " element " << i;
        norm += expected[i] * expected[i];
        error += (found[i] - expected[i]) * (found[i] - expected[i]);
      }
      // Rounding errors of either sign mostly cancel: the gradient as a whole is within δ.
      ASSERT_LE(std::sqrt(error), 3.0 * relative_error(s, u) * std::sqrt(norm) + u) << describe(s);
    }
}

TYPED_TEST(Attention, BackwardHasTheSameBitsInEveryRun) {
  using T = TypeParam;
  const AttentionShape s{2, 130, 4, 2, 24};
  const auto qkv = uniform<T>(s.tokens() * s.qkv_columns(), 1);
  const auto grad = uniform<T>(s.tokens() * s.heads * s.head_size, 2);
  EXPECT_EQ(run_backward(qkv, grad, s, some_dropout()), run_backward(qkv, grad, s, some_dropout()));
}

TYPED_TEST(Attention, BatchSplitHasTheSameBits) {
  using T = TypeParam;
  const AttentionShape whole{3, 70, 2, 2, 16};
  AttentionShape one = whole;
  one.batch = 1;
  const auto qkv = uniform<T>(whole.tokens() * whole.qkv_columns(), 1);
  const auto grad = uniform<T>(whole.tokens() * whole.heads * whole.head_size, 2);
  const auto o = run_forward(qkv, whole, some_dropout()).o;
  const auto dqkv = run_backward(qkv, grad, whole, some_dropout());
  for (std::int64_t b = 0; b < whole.batch; ++b) {
    const auto part = [&](const std::vector<T>& all) {
      const auto n = static_cast<std::ptrdiff_t>(all.size()) / whole.batch;
      return std::vector<T>(all.begin() + b * n, all.begin() + (b + 1) * n);
    };
    AttentionDropout dropout = some_dropout();
    dropout.first_sample += b;
    EXPECT_EQ(run_forward(part(qkv), one, dropout).o, part(o));
    EXPECT_EQ(run_backward(part(qkv), part(grad), one, dropout), part(dqkv));
  }
}

/// Uneven parts of whole groups of heads, forward and backward; the last part has no head.
TYPED_TEST(Attention, HeadSplitHasTheSameBits) {
  using T = TypeParam;
  for (const AttentionShape& whole : {AttentionShape{2, 70, 5, 5, 13}, {1, 67, 6, 3, 16}}) {
    const auto qkv = uniform<T>(whole.tokens() * whole.qkv_columns(), 1);
    const auto grad = uniform<T>(whole.tokens() * whole.heads * whole.head_size, 2);
    const auto forward = run_forward(qkv, whole, some_dropout());
    const auto dqkv = run_backward(qkv, grad, whole, some_dropout());
    const std::int64_t ends[] = {0, 1, whole.key_value_heads, whole.key_value_heads};
    for (int part = 0; part < 3; ++part) {
      const std::int64_t group = whole.heads / whole.key_value_heads;
      AttentionShape mine = whole;
      mine.key_value_heads = ends[part + 1] - ends[part];
      mine.heads = mine.key_value_heads * group;
      AttentionDropout dropout = some_dropout();
      dropout.first_head += ends[part] * group;
      // Columns of queries and outputs; shifted, those of keys and values.
      const std::int64_t K = whole.head_size;
      const std::pair heads{ends[part] * group * K, ends[part + 1] * group * K};
      const auto shared = [&](std::int64_t before) {
        return std::pair{(before + ends[part]) * K, (before + ends[part + 1]) * K};
      };
      const std::vector<std::pair<std::int64_t, std::int64_t>> all{
          heads, shared(whole.heads), shared(whole.heads + whole.key_value_heads)};
      const auto my_qkv = take_columns(qkv, whole.qkv_columns(), all);
      const auto my_grad = take_columns(grad, whole.heads * K, {heads});
      EXPECT_EQ(run_forward(my_qkv, mine, dropout).o,
                take_columns(forward.o, whole.heads * K, {heads}))
          << describe(whole) << " part " << part;
      EXPECT_EQ(run_backward(my_qkv, my_grad, mine, dropout),
                take_columns(dqkv, whole.qkv_columns(), all))
          << describe(whole) << " part " << part;
    }
  }
}

TYPED_TEST(Attention, AcceptsEmptyInput) {
  using T = TypeParam;
  for (const AttentionShape& s : {AttentionShape{2, 13, 0, 0, 16}, {0, 13, 2, 1, 16}}) {
    EXPECT_TRUE(run_backward(std::vector<T>{}, std::vector<T>{}, s, some_dropout()).empty());
    const DeviceArray<std::int32_t> places(s.batch);
    attention_decode<T>(Exec{}, View2<T>(nullptr, at(s.batch), at(s.heads * s.head_size)),
                        View2<T>(nullptr, at(s.batch), at(s.heads * s.head_size)),
                        View3<T>(nullptr, at(s.batch), 5, at(s.key_value_heads * s.head_size)),
                        View3<T>(nullptr, at(s.batch), 5, at(s.key_value_heads * s.head_size)),
                        {places.flat(), places.flat()}, s);
  }
  // Keys and values that no head here sees have no gradient.
  const AttentionShape unseen{2, 13, 0, 2, 16};
  const auto qkv = uniform<T>(unseen.tokens() * unseen.qkv_columns(), 1);
  EXPECT_EQ(run_backward(qkv, std::vector<T>{}, unseen, some_dropout()),
            std::vector<T>(qkv.size(), T(0)));
}

/// Rows of all samples and positions, the last first, and one without a token. Positions beyond the
/// samples are NaN and must not be read.
TYPED_TEST(Attention, DecodedRowsMatchForward) {
  using T = TypeParam;
  const double u = std::numeric_limits<T>::epsilon() / 2;
  const Exec exec;
  for (AttentionShape s : attention_shapes) {
    s.causal = true;
    const auto qkv = uniform<T>(s.tokens() * s.qkv_columns(), 1);
    const auto o = run_forward(qkv, s).o;
    const std::int64_t columns = s.heads * s.head_size;
    const std::int64_t shared = s.key_value_heads * s.head_size;
    const std::int64_t room = s.sequence + 3;
    const std::int64_t rows = s.tokens() + 1;
    const DeviceArray<T> keys(std::vector<T>(at(s.batch * room * shared), T(NAN)));
    const DeviceArray<T> values(keys.values()), q(rows * columns), found(rows * columns);
    std::vector<T> given;
    std::vector<std::int32_t> texts{-1}, positions{0};
    given.insert(given.end(), qkv.begin(), qkv.begin() + s.qkv_columns());
    for (std::int64_t t = s.tokens() - 1; t >= 0; --t) {
      const auto row = qkv.begin() + t * s.qkv_columns();
      given.insert(given.end(), row, row + s.qkv_columns());
      texts.push_back(static_cast<std::int32_t>(t / s.sequence));
      positions.push_back(static_cast<std::int32_t>(t % s.sequence));
    }
    const DeviceArray<T> d_qkv(given);
    const DeviceArray<std::int32_t> d_texts(texts), d_positions(positions);
    const CacheRows at_rows{d_texts.flat(), d_positions.flat()};
    cache_append<T>(exec, q.matrix(rows, columns), keys.cube(s.batch, room, shared),
                    values.cube(s.batch, room, shared), d_qkv.matrix(rows, s.qkv_columns()),
                    at_rows);
    attention_decode<T>(exec, found.matrix(rows, columns), q.matrix(rows, columns),
                        keys.cube(s.batch, room, shared), values.cube(s.batch, room, shared),
                        at_rows, s);
    fence(exec, "test");
    const auto result = found.values();
    for (std::int64_t c = 0; c < columns; ++c) ASSERT_EQ(result[at(c)], T(0));
    for (std::int64_t t = 0; t < s.tokens(); ++t)
      for (std::int64_t c = 0; c < columns; ++c)
        ASSERT_NEAR(result[at((s.tokens() - t) * columns + c)], o[at(t * columns + c)],
                    4.0 * relative_error(s, u))
            << describe(s) << " token " << t;
  }
}

TEST(AttentionShapes, InvalidShapesAreRejected) {
  EXPECT_THROW(run_forward(std::vector<double>(8), {1, 1, 3, 2, 1}), Error);
  EXPECT_THROW(run_forward(std::vector<double>(8), {1, 1, 3, 1, 1, true, 0.0, 2}), Error)
      << "three heads in groups of two use two heads of keys";
  EXPECT_THROW(run_forward(std::vector<double>(8), {1, 1, 1, 1, 1, true, 0.0, 3, 3}), Error);
  EXPECT_THROW(run_forward(std::vector<double>(8), {1, 1, 3, 0, 1}), Error);
  EXPECT_THROW(run_forward(std::vector<double>(3), {1, 1, 1, 1, 1}, {1.0, {}}), Error);
  EXPECT_THROW(run_forward(std::vector<double>(3), {1, 1, 1, 1, 1, true, 0.0, 0, 0, -1}), Error);
  EXPECT_THROW(run_forward(std::vector<double>(3), {1, 1, 1, 1, 1, false, 0.0, 0, 0, 1}), Error);
}

}  // namespace
}  // namespace trireme::kernels
