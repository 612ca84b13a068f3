// Attention with biases of relative positions against the definition in double, and by finite
// differences.
#include <trireme/base/check.hpp>
#include <trireme/kernels/attention.hpp>
#include <trireme/tensor/fence.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "kernels/attention_runs.hpp"
#include "kernels/cases.hpp"
#include "reference/finite_difference.hpp"
#include "support/device_array.hpp"

namespace trireme::kernels {
namespace {

using namespace attention_runs;

AttentionShape biased_shape(std::int64_t batch, std::int64_t sequence, std::int64_t heads,
                            std::int64_t key_value_heads, std::int64_t size, bool causal,
                            std::int64_t buckets, std::int64_t max_distance) {
  AttentionShape s{batch, sequence, heads, key_value_heads, size, causal, 1.0};
  s.buckets = relative_buckets(buckets, max_distance, !causal);
  return s;
}

/// Sequences within a block and over several blocks, beyond the distance of the last bucket; scales
/// other than 1, windows and grouped heads.
std::vector<AttentionShape> biased_shapes() {
  std::vector<AttentionShape> all;
  for (const bool causal : {true, false}) {
    for (const std::int64_t sequence : small_sizes)
      all.push_back(biased_shape(2, sequence, 2, 2, 13, causal, 32, 128));
    all.push_back(biased_shape(1, 330, 2, 1, 8, causal, 32, 128));
    all.push_back(biased_shape(2, 70, 4, 2, 16, causal, 8, 20));
    all.back().scale = 0.0;
  }
  all.push_back(biased_shape(1, 200, 3, 3, 8, true, 8, 20));
  all.back().window = 70;
  return all;
}

template <class T>
std::vector<T> random_table(const AttentionShape& s) {
  return uniform<T>(s.buckets.count * s.heads, 3);
}

/// Results and gradients. The gradient of the table is added to ones.
template <class T>
struct Biased {
  using A = Accumulate<T>;
  std::vector<T> o, dqkv;
  std::vector<A> logsumexp, dtable;

  Biased(const std::vector<T>& qkv, const std::vector<T>& table, const std::vector<T>& grad,
         const AttentionShape& s, const AttentionDropout& dropout = {}) {
    const Handle handle;
    const std::int64_t Q = s.heads * s.head_size, all = s.qkv_columns(), rows = s.tokens();
    const DeviceArray<T> d_qkv(qkv), d_table(table), d_grad(grad);
    const DeviceArray<T> d_o(rows * Q, T(NAN)), gradient(rows * all, T(NAN));
    const DeviceArray<A> lse(rows * s.heads, A(NAN)), biases(s.buckets.count * s.heads, A(1));
    const DeviceArray<A> work(attention_workspace_elements<T>(handle.choice(), s), A(NAN));
    const auto sums = lse.cube(s.batch, s.heads, s.sequence);
    const auto of_heads = d_table.matrix(s.buckets.count, s.heads);
    attention_forward<T>(handle, d_o.matrix(rows, Q), sums, d_qkv.matrix(rows, all), s, dropout,
                         of_heads);
    attention_backward<T>(handle, gradient.matrix(rows, all), d_grad.matrix(rows, Q),
                          d_o.matrix(rows, Q), d_qkv.matrix(rows, all), sums, work.flat(), s,
                          dropout, of_heads, biases.matrix(s.buckets.count, s.heads));
    fence(handle, "test");
    o = d_o.values();
    dqkv = gradient.values();
    logsumexp = lse.values();
    dtable = biases.values();
  }
  Biased(const AttentionShape& s, const AttentionDropout& dropout)
      : Biased(random_qkv<T>(s), random_table<T>(s), random_gradient<T>(s), s, dropout) {}
};

/// Causal shapes also with documents.
template <class F>
void for_biased_cases(const F& f) {
  for (const AttentionShape& s : biased_shapes())
    for (const bool documents : {false, true})
      for (const AttentionDropout& dropout : {AttentionDropout{}, some_dropout()}) {
        if (documents && !s.causal) continue;
        SCOPED_TRACE(text(describe(s), " dropout ", dropout.rate, documents ? " documents" : ""));
        const Packed packed(s, {1, 70, 3, 110, 20});
        f(documents ? packed.shape : s, dropout);
      }
}

template <class T>
class AttentionBias : public ::testing::Test {};
TYPED_TEST_SUITE(AttentionBias, AllTypes);

TYPED_TEST(AttentionBias, ForwardMatchesTheDefinition) {
  using T = TypeParam;
  for_biased_cases([](const AttentionShape& s, const AttentionDropout& dropout) {
    const auto expected = reference::attention(random_qkv<T>(s), s, dropout, random_table<T>(s));
    const Biased<T> found(s, dropout);
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

/// Queries, keys and values along a random direction, and every bias.
TEST(AttentionBias, GradientsMatchFiniteDifferences) {
  for_biased_cases([](const AttentionShape& s, const AttentionDropout& dropout) {
    const auto qkv = random_qkv<double>(s), table = random_table<double>(s),
               grad = random_gradient<double>(s);
    const Biased<double> found(qkv, table, grad, s, dropout);
    const auto loss = [&](const auto& x, const auto& biases) {
      return reference::dot(reference::attention(x, s, dropout, biases).o, grad);
    };
    // The loss is a sum of |grad| |o| ≤ 1 terms; its third derivative along a bias is not larger.
    const auto size = static_cast<double>(grad.size());
    const double bound = 2e-10 * (size + 10);
    if (s.sequence < 128) {
      const auto dtable = reference::finite_difference(
          [&](const std::vector<double>& biases) { return loss(qkv, biases); }, table);
      for (std::size_t i = 0; i < dtable.size(); ++i)
        ASSERT_NEAR(found.dtable[i], 1 + dtable[i], bound) << "bias " << i;
    } else {  // all biases at once: each has its own weight in the derivative along a direction
      const auto weights = uniform<double>(static_cast<std::int64_t>(table.size()), 5);
      const auto dtable = reference::finite_difference(
          [&](const std::vector<double>& step) {
            auto biases = table;
            for (std::size_t i = 0; i < biases.size(); ++i) biases[i] += step[0] * weights[i];
            return loss(qkv, biases);
          },
          {0.0});
      double along = 0;
      for (std::size_t i = 0; i < weights.size(); ++i) along += weights[i] * (found.dtable[i] - 1);
      ASSERT_NEAR(along, dtable[0], bound);
    }
    const auto direction = uniform<double>(static_cast<std::int64_t>(qkv.size()), 4);
    const auto along = reference::finite_difference(
        [&](const std::vector<double>& step) {
          auto moved = qkv;
          for (std::size_t i = 0; i < moved.size(); ++i) moved[i] += step[0] * direction[i];
          return loss(moved, table);
        },
        {0.0});
    ASSERT_NEAR(reference::dot(found.dqkv, direction), along[0], 100 * bound);
  });
}

TYPED_TEST(AttentionBias, GradientsMatchDouble) {
  using T = TypeParam;
  for_biased_cases([](const AttentionShape& s, const AttentionDropout& dropout) {
    const auto qkv = random_qkv<T>(s), table = random_table<T>(s), grad = random_gradient<T>(s);
    const auto wide = [](const std::vector<T>& x) {
      return std::vector<double>(x.begin(), x.end());
    };
    const Biased<T> found(qkv, table, grad, s, dropout);
    const Biased<double> expected(wide(qkv), wide(table), wide(grad), s, dropout);
    expect_gradient<T>(found.dqkv, expected.dqkv, s, "dqkv");
    expect_gradient<T>(found.dtable, expected.dtable, s, "dtable");
  });
}

TYPED_TEST(AttentionBias, RunsHaveTheSameBits) {
  using T = TypeParam;
  const AttentionShape s = biased_shape(2, 200, 4, 2, 24, false, 32, 128);
  const Biased<T> one(s, some_dropout()), two(s, some_dropout());
  expect_same_bits(one.o, two.o);
  expect_same_bits(one.dqkv, two.dqkv);
  expect_same_bits(one.dtable, two.dtable);
}

/// Equal biases change no probability.
TYPED_TEST(AttentionBias, BiasesOfZeroGiveTheBitsWithoutBiases) {
  using T = TypeParam;
  for (const bool causal : {true, false}) {
    const AttentionShape s = biased_shape(2, 130, 2, 2, 16, causal, 32, 128);
    AttentionShape plain = s;
    plain.buckets = {};
    const auto qkv = random_qkv<T>(s), grad = random_gradient<T>(s);
    const std::vector<T> zeros(random_table<T>(s).size(), T(0));
    const Biased<T> found(qkv, zeros, grad, s, some_dropout());
    expect_same_bits(found.o, run_forward(qkv, plain, some_dropout()).o);
    EXPECT_EQ(found.dqkv, run_backward(qkv, grad, plain, some_dropout()));
  }
}

/// Samples with padding: the queries of the padding see no key.
TYPED_TEST(AttentionBias, AppliesToRangesOfKeys) {
  using T = TypeParam;
  AttentionShape s = biased_shape(2, 140, 2, 2, 16, false, 8, 20);
  std::vector<std::int32_t> begin, end;
  for (const std::int32_t length : {3, 75})
    for (std::int32_t i = 0; i < 140; ++i) {
      begin.push_back(i < length ? 0 : 140);
      end.push_back(i < length ? length : 140);
    }
  const DeviceArray<std::int32_t> d_begin(begin), d_end(end);
  s.key_begin = d_begin.flat();
  s.key_end = d_end.flat();
  const auto qkv = random_qkv<double>(s), table = random_table<double>(s),
             grad = random_gradient<double>(s);
  const auto dtable = reference::finite_difference(
      [&](const std::vector<double>& biases) {
        return reference::dot(reference::attention(qkv, s, {}, biases).o, grad);
      },
      table);
  const Biased<double> wide(qkv, table, grad, s);
  for (std::size_t i = 0; i < dtable.size(); ++i)
    ASSERT_NEAR(wide.dtable[i], 1 + dtable[i], 1e-6) << "bias " << i;
  const auto narrow = [](const std::vector<double>& x) {
    return std::vector<T>(x.begin(), x.end());
  };
  const Biased<T> found(narrow(qkv), narrow(table), narrow(grad), s);
  const auto same = [](const std::vector<double>& x) {
    const std::vector<T> rounded(x.begin(), x.end());
    return std::vector<double>(rounded.begin(), rounded.end());
  };
  const Biased<double> expected(same(qkv), same(table), same(grad), s);
  expect_gradient<T>(found.dqkv, expected.dqkv, s, "dqkv");
  expect_gradient<T>(found.dtable, expected.dtable, s, "dtable");
}

TYPED_TEST(AttentionBias, DecodedRowsMatchForward) {
  using T = TypeParam;
  const std::int64_t room = 150;
  const AttentionShape s = biased_shape(2, 140, 4, 2, 16, true, 32, 128);
  const auto qkv = random_qkv<T>(s), table = random_table<T>(s);
  const auto expected = reference::attention(qkv, s, {}, table).o;
  const std::int64_t columns = s.heads * s.head_size, shared = s.key_value_heads * s.head_size;
  std::vector<std::int32_t> texts, positions;
  for (std::int32_t t = 0; t < s.tokens(); ++t) {
    texts.push_back(t / 140);
    positions.push_back(t % 140);
  }
  const std::int64_t rows = s.tokens();
  const DeviceArray<T> d_qkv(qkv), d_table(table), q(rows * columns), o(rows * columns, T(NAN));
  const DeviceArray<T> keys(2 * room * shared), values(2 * room * shared);
  const DeviceArray<std::int32_t> d_texts(texts), d_positions(positions);
  const CacheRows at_rows{d_texts.flat(), d_positions.flat()};
  cache_append<T>(Exec{}, q.matrix(rows, columns), keys.cube(2, room, shared),
                  values.cube(2, room, shared), d_qkv.matrix(rows, s.qkv_columns()), at_rows);
  attention_decode<T>(Exec{}, o.matrix(rows, columns), q.matrix(rows, columns),
                      keys.cube(2, room, shared), values.cube(2, room, shared), at_rows, s, {},
                      d_table.matrix(s.buckets.count, s.heads));
  const auto found = o.values();
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(static_cast<double>(found[i]), expected[i], error_of_output<T>(s, {})) << i;
}

TYPED_TEST(AttentionBias, AcceptsEmptyInput) {
  using T = TypeParam;
  for (const AttentionShape& s :
       {biased_shape(2, 13, 0, 0, 16, true, 8, 20), biased_shape(0, 13, 2, 1, 16, false, 8, 20)}) {
    const Biased<T> found(s, some_dropout());
    EXPECT_TRUE(found.o.empty());
    using A = Accumulate<T>;
    EXPECT_EQ(found.dtable, std::vector<A>(found.dtable.size(), A(1)));
  }
}

TEST(AttentionBias, RejectsWrongShapes) {
  const AttentionShape s = biased_shape(1, 3, 2, 2, 4, true, 8, 20);
  EXPECT_THROW(run_forward(random_qkv<float>(s), s), Error) << "no table";
  AttentionShape capped = s;
  capped.cap = 1;
  EXPECT_THROW(Biased<float>(capped, {}), Error);
  const Handle handle;
  const DeviceArray<float> x(200);
  const DeviceArray<float> work(attention_workspace_elements<float>(handle.choice(), s));
  const auto qkv = x.matrix(3, 24), o = x.matrix(3, 8), table = x.matrix(8, 2),
             few = x.matrix(7, 2);
  const auto lse = x.cube(1, 2, 3);
  EXPECT_THROW(attention_forward<float>(handle, o, lse, qkv, s, {}, few), Error);
  EXPECT_THROW(
      attention_backward<float>(handle, qkv, o, o, qkv, lse, work.flat(), s, {}, few, table),
      Error);
  EXPECT_THROW(
      attention_backward<float>(handle, qkv, o, o, qkv, lse, work.flat(), s, {}, table, few),
      Error);
  EXPECT_THROW(attention_backward<float>(handle, qkv, o, o, qkv, lse, part(work.flat(), 0, 6), s,
                                         {}, table, table),
               Error)
      << "no memory for the partial sums";
}

}  // namespace
}  // namespace trireme::kernels
