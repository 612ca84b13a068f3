// Attention to keys of other tokens against the definition in double, and by finite differences.
#include <trireme/base/check.hpp>
#include <trireme/kernels/attention.hpp>
#include <trireme/tensor/fence.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/attention_runs.hpp"
#include "kernels/cases.hpp"
#include "reference/finite_difference.hpp"
#include "support/device_array.hpp"

namespace trireme::kernels {
namespace {

using namespace attention_runs;

AttentionShape key_shape(std::int64_t batch, std::int64_t sequence, std::int64_t keys,
                         std::int64_t heads, std::int64_t key_value_heads, std::int64_t size) {
  AttentionShape s{batch, sequence, heads, key_value_heads, size, false};
  s.key_sequence = keys;
  return s;
}

std::vector<AttentionShape> key_shapes() {
  std::vector<AttentionShape> all;
  for (const std::int64_t sequence : small_sizes)
    for (const std::int64_t keys : small_sizes)
      all.push_back(key_shape(2, sequence, keys, 2, 1, 13));
  all.push_back(key_shape(1, 300, 70, 3, 3, 16));
  all.push_back(key_shape(2, 70, 300, 4, 2, 32));
  all.push_back(key_shape(1, 65, 64, 2, 2, 1));
  all.back().scale = 1.0;
  return all;
}

enum class KeyRanges { none, pairs, sliding };

/// A shape with ranges of keys, whose memory this object owns. `pairs`: three pairs of texts in
/// each sample, then padding whose queries see no key. `sliding`: each query has a range of its
/// own, and those of the first and the last queries are empty.
struct RangedKeys {
  std::vector<std::int32_t> begin, end;
  DeviceArray<std::int32_t> d_begin, d_end;
  AttentionShape shape;

  RangedKeys(const AttentionShape& s, KeyRanges kind)
      : begin(bounds(s, kind, false)),
        end(bounds(s, kind, true)),
        d_begin(begin),
        d_end(end),
        shape(s) {
    if (kind == KeyRanges::none) return;
    shape.key_begin = d_begin.flat();
    shape.key_end = d_end.flat();
  }
  static std::vector<std::int32_t> bounds(const AttentionShape& s, KeyRanges kind, bool end) {
    const std::int64_t keys = s.keys_per_sample();
    std::vector<std::int32_t> all, begins;
    if (end) begins = bounds(s, kind, false);
    for (std::int64_t t = 0; t < s.tokens(); ++t) {
      const std::int64_t b = t / s.sequence, i = t % s.sequence, middle = i * keys / s.sequence;
      std::int64_t bound = middle + (end ? keys / 5 - 2 : -keys / 5);
      if (kind == KeyRanges::pairs) {
        const std::int64_t pair = (i + b) * 4 / (s.sequence + b);
        bound = pair == 3 ? keys : (end ? pair + 1 : pair) * keys / (3 + b);
        if (b == 0 && s.sequence < 4) bound = end ? keys : 0;
      }
      bound = std::clamp<std::int64_t>(bound, end ? begins[at(t)] : 0, keys);
      all.push_back(static_cast<std::int32_t>(bound));
    }
    return all;
  }
};

template <class T>
struct KeyArrays {
  std::vector<T> q, key_value, grad;
  explicit KeyArrays(const AttentionShape& s)
      : q(uniform<T>(s.tokens() * s.heads * s.head_size, 1)),
        key_value(
            uniform<T>(s.batch * s.keys_per_sample() * 2 * s.key_value_heads * s.head_size, 2)),
        grad(uniform<T>(s.tokens() * s.heads * s.head_size, 3)) {}
  template <class U>
  explicit KeyArrays(const KeyArrays<U>& x)
      : q(x.q.begin(), x.q.end()),
        key_value(x.key_value.begin(), x.key_value.end()),
        grad(x.grad.begin(), x.grad.end()) {}
};

/// KeyResults and gradients. All elements are NaN before, so that all must be written.
template <class T>
struct KeyResults {
  using A = Accumulate<T>;
  std::vector<T> o, dq, dkey_value;
  std::vector<A> logsumexp;

  KeyResults(const KeyArrays<T>& x, const AttentionShape& s, const AttentionDropout& dropout = {}) {
    const Handle handle;
    const std::int64_t Q = s.heads * s.head_size, KV = 2 * s.key_value_heads * s.head_size;
    const std::int64_t rows = s.tokens(), keys = s.batch * s.keys_per_sample();
    const DeviceArray<T> q(x.q), key_value(x.key_value), grad(x.grad);
    const DeviceArray<T> d_o(rows * Q, T(NAN)), d_q(rows * Q, T(NAN)), d_kv(keys * KV, T(NAN));
    const DeviceArray<A> lse(rows * s.heads, A(NAN));
    const DeviceArray<A> work(attention_workspace_elements<T>(handle.choice(), s), A(NAN));
    const auto sums = lse.cube(s.batch, s.heads, s.sequence);
    attention_forward<T>(handle, d_o.matrix(rows, Q), sums, q.matrix(rows, Q),
                         key_value.matrix(keys, KV), s, dropout);
    attention_backward<T>(handle, d_q.matrix(rows, Q), d_kv.matrix(keys, KV), grad.matrix(rows, Q),
                          d_o.matrix(rows, Q), q.matrix(rows, Q), key_value.matrix(keys, KV), sums,
                          work.flat(), s, dropout);
    fence(handle, "test");
    o = d_o.values();
    dq = d_q.values();
    dkey_value = d_kv.values();
    logsumexp = lse.values();
  }
};

template <class F>
void for_key_cases(const F& f) {
  for (const AttentionShape& s : key_shapes())
    for (const KeyRanges kind : {KeyRanges::none, KeyRanges::pairs, KeyRanges::sliding})
      for (const AttentionDropout& dropout : {AttentionDropout{}, some_dropout()}) {
        SCOPED_TRACE(text(describe(s), " keys ", s.key_sequence, " ranges ", int(kind), " dropout ",
                          dropout.rate));
        const RangedKeys ranged(s, kind);
        f(ranged.shape, dropout);
      }
}

template <class T>
class AttentionToKeys : public ::testing::Test {};
TYPED_TEST_SUITE(AttentionToKeys, AllTypes);

TYPED_TEST(AttentionToKeys, ForwardMatchesTheDefinition) {
  using T = TypeParam;
  for_key_cases([](const AttentionShape& s, const AttentionDropout& dropout) {
    const KeyArrays<T> x(s);
    const auto expected = reference::attention(x.q, x.key_value, s, dropout);
    const KeyResults<T> found(x, s, dropout);
    const double bound = error_of_output<T>(s, dropout);
    for (std::size_t i = 0; i < found.o.size(); ++i)
      ASSERT_NEAR(static_cast<double>(found.o[i]), expected.o[i], bound) << "o " << i;
    const auto u = static_cast<double>(std::numeric_limits<Accumulate<T>>::epsilon()) / 2;
    for (std::size_t i = 0; i < found.logsumexp.size(); ++i)
      ASSERT_NEAR(found.logsumexp[i], expected.logsumexp[i],
                  relative_error(s, u) + 4.0 * u * std::abs(expected.logsumexp[i]))
          << "logsumexp " << i;
  });
}

TEST(AttentionToKeys, GradientsMatchFiniteDifferences) {
  for (const AttentionShape& s : {key_shape(2, 5, 7, 2, 1, 3), key_shape(1, 8, 3, 2, 2, 2)})
    for (const KeyRanges kind : {KeyRanges::none, KeyRanges::pairs, KeyRanges::sliding})
      for (const AttentionDropout& dropout : {AttentionDropout{}, some_dropout()}) {
        const RangedKeys ranged(s, kind);
        const KeyArrays<double> x(s);
        const KeyResults<double> found(x, ranged.shape, dropout);
        const auto loss = [&](const auto& q, const auto& key_value) {
          return reference::dot(reference::attention(q, key_value, ranged.shape, dropout).o,
                                x.grad);
        };
        const auto dq = reference::finite_difference(
            [&](const std::vector<double>& q) { return loss(q, x.key_value); }, x.q);
        const auto dkey_value = reference::finite_difference(
            [&](const std::vector<double>& kv) { return loss(x.q, kv); }, x.key_value);
        for (std::size_t i = 0; i < dq.size(); ++i) ASSERT_NEAR(found.dq[i], dq[i], 1e-8) << i;
        for (std::size_t i = 0; i < dkey_value.size(); ++i)
          ASSERT_NEAR(found.dkey_value[i], dkey_value[i], 1e-8) << i;
      }
}

/// Queries, keys and values separately, so that none hides an error of another.
TEST(AttentionToKeys, GradientsOfManyBlocksMatchFiniteDifferences) {
  for_key_cases([](const AttentionShape& s, const AttentionDropout& dropout) {
    const KeyArrays<double> x(s);
    const KeyResults<double> found(x, s, dropout);
    const auto of_q = uniform<double>(static_cast<std::int64_t>(x.q.size()), 4);
    const auto moved = [](std::vector<double> from, const std::vector<double>& by, double step) {
      for (std::size_t i = 0; i < from.size(); ++i) from[i] += step * by[i];
      return from;
    };
    // Scores move by up to c = scale·K·step, and the loss is a sum of |grad| |o| ≤ 1 terms: the
    // difference is off by c² and by rounding.
    const double step = 1e-5, bound = 1e-9 * static_cast<double>(x.q.size() + 10);
    const auto slope_of = [&](const auto& loss) { return (loss(step) - loss(-step)) / (2 * step); };
    EXPECT_NEAR(reference::dot(found.dq, of_q), slope_of([&](double t) {
                  return reference::dot(
                      reference::attention(moved(x.q, of_q, t), x.key_value, s, dropout).o, x.grad);
                }),
                bound);
    for (const bool values : {false, true}) {
      auto direction = uniform<double>(static_cast<std::int64_t>(x.key_value.size()), 5);
      const std::int64_t half = s.key_value_heads * s.head_size;
      for (std::size_t i = 0; i < direction.size(); ++i)
        if ((static_cast<std::int64_t>(i) % (2 * half) >= half) != values) direction[i] = 0;
      EXPECT_NEAR(reference::dot(found.dkey_value, direction), slope_of([&](double t) {
                    return reference::dot(
                        reference::attention(x.q, moved(x.key_value, direction, t), s, dropout).o,
                        x.grad);
                  }),
                  bound);
    }
  });
}

TYPED_TEST(AttentionToKeys, GradientsMatchDouble) {
  using T = TypeParam;
  for_key_cases([](const AttentionShape& s, const AttentionDropout& dropout) {
    const KeyArrays<T> x(s);
    const KeyResults<T> found(x, s, dropout);
    const KeyResults<double> expected(KeyArrays<double>(x), s, dropout);
    expect_gradient<T>(found.dq, expected.dq, s, "dq");
    expect_gradient<T>(found.dkey_value, expected.dkey_value, s, "dkey_value");
  });
}

TYPED_TEST(AttentionToKeys, RunsHaveTheSameBits) {
  using T = TypeParam;
  const RangedKeys ranged(key_shape(2, 130, 200, 4, 2, 24), KeyRanges::sliding);
  const KeyArrays<T> x(ranged.shape);
  const KeyResults<T> one(x, ranged.shape, some_dropout()), two(x, ranged.shape, some_dropout());
  expect_same_bits(one.o, two.o);
  expect_same_bits(one.dq, two.dq);
  expect_same_bits(one.dkey_value, two.dkey_value);
}

TYPED_TEST(AttentionToKeys, QueriesWithoutKeysHaveNoResults) {
  using T = TypeParam;
  AttentionShape s = key_shape(1, 70, 65, 2, 2, 16);
  const DeviceArray<std::int32_t> at_end(s.sequence, 65);
  s.key_begin = s.key_end = at_end.flat();
  const KeyResults<T> found(KeyArrays<T>(s), s, some_dropout());
  EXPECT_EQ(found.o, std::vector<T>(found.o.size(), T(0)));
  EXPECT_EQ(found.dq, std::vector<T>(found.dq.size(), T(0)));
  EXPECT_EQ(found.dkey_value, std::vector<T>(found.dkey_value.size(), T(0)));
  using A = Accumulate<T>;
  EXPECT_EQ(found.logsumexp,
            std::vector<A>(found.logsumexp.size(), std::numeric_limits<A>::lowest()));
}

/// With as many keys as queries, attention to other keys is attention of qkv.
TYPED_TEST(AttentionToKeys, OwnKeysInAnArrayOfTheirOwnGiveTheSameBits) {
  using T = TypeParam;
  const AttentionShape s{2, 130, 4, 2, 24, false};
  const auto qkv = random_qkv<T>(s), grad = random_gradient<T>(s);
  KeyArrays<T> x(s);
  const std::int64_t queries = s.heads * s.head_size;
  x.q = take_columns(qkv, s.qkv_columns(), {{0, queries}});
  x.key_value = take_columns(qkv, s.qkv_columns(), {{queries, s.qkv_columns()}});
  x.grad = grad;
  const KeyResults<T> found(x, s, some_dropout());
  const auto dqkv = run_backward(qkv, grad, s, some_dropout());
  expect_same_bits(found.o, run_forward(qkv, s, some_dropout()).o);
  expect_same_bits(found.dq, take_columns(dqkv, s.qkv_columns(), {{0, queries}}));
  expect_same_bits(found.dkey_value,
                   take_columns(dqkv, s.qkv_columns(), {{queries, s.qkv_columns()}}));
}

/// Self-attention of padded samples.
TYPED_TEST(AttentionToKeys, RangesAlsoApplyToOwnKeys) {
  using T = TypeParam;
  const AttentionShape s{2, 140, 2, 2, 16, false};
  const RangedKeys ranged(s, KeyRanges::pairs);
  const auto qkv = random_qkv<T>(s), grad = random_gradient<T>(s);
  const auto o = run_forward(qkv, ranged.shape).o;
  const auto expected = reference::attention(qkv, ranged.shape).o;
  for (std::size_t i = 0; i < o.size(); ++i)
    ASSERT_NEAR(static_cast<double>(o[i]), expected[i], error_of_output<T>(s, {}));
  const std::vector<double> x(qkv.begin(), qkv.end()), g(grad.begin(), grad.end());
  expect_gradient<T>(run_backward(qkv, grad, ranged.shape), run_backward(x, g, ranged.shape), s,
                     "dqkv");
}

/// Ends of the keys of tokens that see no later tokens, except in two blocks of each sample, as
/// images in a text.
std::vector<std::int32_t> ends_with_blocks(const AttentionShape& s) {
  std::vector<std::int32_t> ends;
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t i = 0; i < s.sequence; ++i) {
      std::int64_t end = i + 1;
      for (const auto& [first, last] :
           {std::pair{s.sequence / 9 + b, s.sequence / 2}, {s.sequence / 2 + 2, s.sequence - b}})
        if (i >= first && i < last) end = last;
      ends.push_back(static_cast<std::int32_t>(end));
    }
  return ends;
}

/// With windows of less and of more tokens than a block, soft caps and dropout.
template <class F>
void for_block_cases(const std::vector<std::int64_t>& sequences, const F& f) {
  for (const std::int64_t sequence : sequences)
    for (const std::int64_t window : {std::int64_t{0}, std::int64_t{5}, sequence - 3})
      for (const double cap : {0.0, 2.0})
        for (const AttentionDropout& dropout : {AttentionDropout{}, some_dropout()}) {
          AttentionShape s{2, sequence, 4, 2, 16, false};
          s.window = window;
          s.cap = cap;
          const DeviceArray<std::int32_t> ends(ends_with_blocks(s));
          s.key_end = ends.flat();
          SCOPED_TRACE(
              text(describe(s), " window ", window, " cap ", cap, " dropout ", dropout.rate));
          f(s, dropout);
        }
}

TYPED_TEST(AttentionToKeys, BlocksOfTokensSeeOneAnother) {
  using T = TypeParam;
  for_block_cases({13, 150}, [](const AttentionShape& s, const AttentionDropout& dropout) {
    const auto qkv = random_qkv<T>(s), grad = random_gradient<T>(s);
    const auto o = run_forward(qkv, s, dropout).o;
    const auto expected = reference::attention(qkv, s, dropout).o;
    for (std::size_t i = 0; i < o.size(); ++i)
      ASSERT_NEAR(static_cast<double>(o[i]), expected[i], error_of_output<T>(s, dropout)) << i;
    const std::vector<double> x(qkv.begin(), qkv.end()), g(grad.begin(), grad.end());
    expect_gradient<T>(run_backward(qkv, grad, s, dropout), run_backward(x, g, s, dropout), s,
                       "dqkv");
  });
}

TEST(AttentionToKeys, GradientsOfBlocksMatchFiniteDifferences) {
  for_block_cases({13, 70}, [](const AttentionShape& s, const AttentionDropout& dropout) {
    const auto qkv = random_qkv<double>(s), grad = random_gradient<double>(s);
    const auto found = run_backward(qkv, grad, s, dropout);
    const std::int64_t columns = s.qkv_columns(), queries = s.heads * s.head_size;
    const std::int64_t keys = queries + s.key_value_heads * s.head_size;
    const double step = 1e-5, bound = 1e-9 * static_cast<double>(grad.size() + 10);
    for (const auto& [first, last] :
         {std::pair{std::int64_t{0}, queries}, {queries, keys}, {keys, columns}}) {
      auto direction = uniform<double>(static_cast<std::int64_t>(qkv.size()), 5);
      for (std::size_t i = 0; i < direction.size(); ++i)
        if (const auto c = static_cast<std::int64_t>(i) % columns; c < first || c >= last)
          direction[i] = 0;
      const auto loss = [&](double t) {
        std::vector<double> moved = qkv;
        for (std::size_t i = 0; i < moved.size(); ++i) moved[i] += t * direction[i];
        return reference::dot(reference::attention(moved, s, dropout).o, grad);
      };
      EXPECT_NEAR(reference::dot(found, direction), (loss(step) - loss(-step)) / (2 * step), bound);
    }
  });
}

/// Without blocks, ends are a causal mask, also in a window.
TYPED_TEST(AttentionToKeys, EndsOfTextAreACausalMask) {
  using T = TypeParam;
  for (const std::int64_t window : {0, 7, 90}) {
    AttentionShape causal{2, 140, 4, 2, 16};
    causal.window = window;
    std::vector<std::int32_t> numbers;
    for (std::int64_t t = 0; t < causal.tokens(); ++t)
      numbers.push_back(static_cast<std::int32_t>(t % causal.sequence + 1));
    const DeviceArray<std::int32_t> ends(numbers);
    AttentionShape ranged = causal;
    ranged.causal = false;
    ranged.key_end = ends.flat();
    const auto qkv = random_qkv<T>(causal);
    const auto expected = reference::attention(qkv, causal).o;
    const auto found = run_forward(qkv, ranged).o;
    for (std::size_t i = 0; i < found.size(); ++i)
      ASSERT_NEAR(static_cast<double>(found[i]), expected[i], error_of_output<T>(causal, {})) << i;
  }
}

/// The tokens of a text in a cache, which see the tokens up to their end.
TYPED_TEST(AttentionToKeys, DecodedBlocksMatchForward) {
  using T = TypeParam;
  for (const std::int64_t window : {0, 5, 90}) {
    AttentionShape s{1, 130, 2, 1, 16, false};
    s.window = window;
    const auto numbers = ends_with_blocks(s);
    const DeviceArray<std::int32_t> ends(numbers);
    s.key_end = ends.flat();
    const auto qkv = random_qkv<T>(s);
    const auto expected = run_forward(qkv, s).o;
    const std::int64_t queries = 32, shared = 16, columns = s.qkv_columns();
    const DeviceArray<T> q(take_columns(qkv, columns, {{0, queries}}));
    const DeviceArray<T> keys(take_columns(qkv, columns, {{queries, queries + shared}}));
    const DeviceArray<T> values(take_columns(qkv, columns, {{queries + shared, columns}}));
    std::vector<std::int32_t> places;
    for (std::int32_t i = 0; i < s.sequence; ++i) places.push_back(i);
    const DeviceArray<std::int32_t> texts(s.sequence), positions(places);
    const DeviceArray<T> o(s.sequence * queries, T(NAN));
    attention_decode<T>(Exec{}, o.matrix(s.sequence, queries), q.matrix(s.sequence, queries),
                        keys.cube(1, s.sequence, shared), values.cube(1, s.sequence, shared),
                        {texts.flat(), positions.flat(), ends.flat()}, s);
    const auto found = o.values();
    for (std::size_t i = 0; i < found.size(); ++i)
      ASSERT_NEAR(static_cast<double>(found[i]), static_cast<double>(expected[i]),
                  2 * error_of_output<T>(s, {}))
          << i;
  }
}

/// A row attends to the first n keys of a text, and to none if n = 0.
TYPED_TEST(AttentionToKeys, DecodedRowsMatchForward) {
  using T = TypeParam;
  const std::int64_t room = 140, texts = 4, columns = 2 * 16, shared = 16;
  const std::vector<std::int32_t> lengths{140, 1, 0, 70};
  AttentionShape s = key_shape(texts, 1, room, 2, 1, 16);
  const DeviceArray<std::int32_t> begin(texts), end(lengths);
  s.key_begin = begin.flat();
  s.key_end = end.flat();
  const KeyArrays<T> x(s);
  const auto expected = KeyResults<T>(x, s).o;
  const DeviceArray<T> q(x.q), o(texts * columns, T(NAN));
  const DeviceArray<T> keys(take_columns(x.key_value, 2 * shared, {{0, shared}}));
  const DeviceArray<T> values(take_columns(x.key_value, 2 * shared, {{shared, 2 * shared}}));
  const DeviceArray<std::int32_t> rows(std::vector<std::int32_t>{0, 1, 2, 3});
  const DeviceArray<std::int32_t> last(std::vector<std::int32_t>{139, 0, -1, 69});
  const AttentionShape plain = key_shape(texts, 1, room, 2, 1, 16);
  attention_decode<T>(Exec{}, o.matrix(texts, columns), q.matrix(texts, columns),
                      keys.cube(texts, room, shared), values.cube(texts, room, shared),
                      {rows.flat(), last.flat()}, plain);
  const auto found = o.values();
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(static_cast<double>(found[i]), static_cast<double>(expected[i]),
                2 * error_of_output<T>(s, {}))
        << i;
}

TYPED_TEST(AttentionToKeys, AcceptEmptyInput) {
  using T = TypeParam;
  for (const AttentionShape& s : {key_shape(0, 13, 5, 2, 1, 16), key_shape(2, 13, 5, 0, 0, 16)})
    EXPECT_TRUE(KeyResults<T>(KeyArrays<T>(s), s).dkey_value.empty());
  // Keys and values that no query sees have no gradient.
  for (const AttentionShape& s : {key_shape(2, 0, 5, 2, 1, 16), key_shape(2, 13, 5, 0, 2, 16)}) {
    const KeyResults<T> found(KeyArrays<T>(s), s);
    EXPECT_EQ(found.dkey_value, std::vector<T>(found.dkey_value.size(), T(0)));
  }
}

TEST(AttentionToKeys, RejectWrongShapes) {
  const AttentionShape s = key_shape(1, 3, 5, 2, 1, 4);
  const auto run = [](const AttentionShape& given, const AttentionShape& arrays) {
    return KeyResults<float>(KeyArrays<float>(arrays), given);
  };
  AttentionShape wrong = s;
  wrong.causal = true;
  EXPECT_THROW(run(wrong, s), Error);
  wrong = s;
  wrong.key_sequence = -1;
  EXPECT_THROW(run(wrong, s), Error);
  wrong = s;
  wrong.buckets = relative_buckets(8, 20, true);
  EXPECT_THROW(run(wrong, s), Error);
  wrong = s;
  const DeviceArray<std::int32_t> few(2);
  wrong.key_begin = wrong.key_end = few.flat();
  EXPECT_THROW(run(wrong, s), Error);
  EXPECT_THROW(run_forward(std::vector<float>(at(s.tokens() * s.qkv_columns())), s), Error)
      << "five keys in an array of three tokens";
  const Handle handle;
  const DeviceArray<float> x(100);
  EXPECT_THROW(attention_forward<float>(handle, x.matrix(3, 8), x.cube(1, 2, 3), x.matrix(3, 8),
                                        x.matrix(4, 8), s),
               Error);
  EXPECT_THROW(attention_forward<float>(handle, x.matrix(3, 8), x.cube(1, 2, 3), x.matrix(3, 4),
                                        x.matrix(5, 8), s),
               Error);
}

}  // namespace
}  // namespace trireme::kernels
