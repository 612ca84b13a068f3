// Sinks of attention against a plain softmax with one more score, and the formulas of the kernels.
#include <trireme/kernels/attention_sinks.hpp>

#include <trireme/kernels/attention.hpp>

#include <kernels/cases.hpp>
#include <reference/finite_difference.hpp>
#include <support/device_array.hpp>
#include <support/numbers.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace trireme::kernels {
namespace {

using testing::at;
using testing::DeviceArray;
using testing::expect_close;
using testing::random_numbers;

using SinkNumbers = std::vector<double>;

constexpr std::int64_t sink_samples = 2, sink_length = 7, sink_heads = 3, sink_size = 5,
                       sink_tokens = sink_samples * sink_length;
constexpr std::int64_t sink_columns = sink_heads * sink_size, sink_qkv = 3 * sink_columns;

AttentionShape shape() {
  AttentionShape s{sink_samples, sink_length, sink_heads, sink_heads, sink_size};
  s.scale = 0.6;
  return s;
}

/// Causal attention with a sink in each head.
SinkNumbers reference(const SinkNumbers& qkv, const SinkNumbers& sinks) {
  SinkNumbers o(at(sink_tokens * sink_columns), 0.0);
  for (std::int64_t t = 0; t < sink_tokens; ++t)
    for (std::int64_t h = 0; h < sink_heads; ++h) {
      double total = std::exp(sinks[at(h)]);
      for (std::int64_t j = t / sink_length * sink_length; j <= t; ++j) {
        double score = 0;
        for (std::int64_t k = 0; k < sink_size; ++k)
          score += qkv[at(t * sink_qkv + h * sink_size + k)] *
                   qkv[at(j * sink_qkv + sink_columns + h * sink_size + k)];
        const double weight = std::exp(shape().scale * score);
        total += weight;
        for (std::int64_t k = 0; k < sink_size; ++k)
          o[at(t * sink_columns + h * sink_size + k)] +=
              weight * qkv[at(j * sink_qkv + 2 * sink_columns + h * sink_size + k)];
      }
      for (std::int64_t k = 0; k < sink_size; ++k)
        o[at(t * sink_columns + h * sink_size + k)] /= total;
    }
  return o;
}

template <class T>
struct WithSinks {
  DeviceArray<T> qkv, sinks, o;
  DeviceArray<Accumulate<T>> logsumexp;

  WithSinks(const SinkNumbers& of_qkv, const SinkNumbers& of_sinks)
      : qkv(of_qkv),
        sinks(of_sinks),
        o(sink_tokens * sink_columns),
        logsumexp(sink_samples * sink_heads * sink_length) {
    const Handle handle;
    attention_forward<T>(handle, o.matrix(sink_tokens, sink_columns), lse(),
                         qkv.matrix(sink_tokens, sink_qkv), shape());
    attention_sinks_forward<T>(handle, o.matrix(sink_tokens, sink_columns), lse(), sinks.flat());
  }
  View3<Accumulate<T>> lse() const { return logsumexp.cube(sink_samples, sink_heads, sink_length); }
};

template <class T>
class AttentionSinks : public ::testing::Test {};
TYPED_TEST_SUITE(AttentionSinks, AllTypes);

TYPED_TEST(AttentionSinks, AddAScoreToEachSoftmax) {
  using T = TypeParam;
  const SinkNumbers qkv = random_numbers<T>(sink_tokens * sink_qkv, 1);
  for (const double spread : {0.0, 1.0, 30.0}) {  // 30: a sink takes all or nothing
    const SinkNumbers sinks = random_numbers<T>(sink_heads, 2, spread);
    const double unit = static_cast<double>(std::numeric_limits<Accumulate<T>>::epsilon());
    const double stored = sizeof(T) == 2 ? 1.0 / 128 : unit;  // two roundings of o
    expect_close(WithSinks<T>(qkv, sinks).o.values(), reference(qkv, sinks),
                 [&](std::size_t) { return 4 * stored + 100 * unit; });
  }
}

TYPED_TEST(AttentionSinks, GiveTheGradientsOfTheSoftmax) {
  using T = double;
  const SinkNumbers qkv = random_numbers<T>(sink_tokens * sink_qkv, 1, 0.5);
  const SinkNumbers sinks = random_numbers<T>(sink_heads, 2),
                    grad = random_numbers<T>(sink_tokens * sink_columns, 3);
  const WithSinks<T> forward(qkv, sinks);
  const DeviceArray<T> d_grad(grad), dqkv(sink_tokens * sink_qkv), dsinks(sink_heads, 1.0);
  const DeviceArray<T> work(sink_tokens * sink_heads);
  const Handle handle;
  const DeviceArray<T> workspace(attention_workspace_elements<T>(handle.choice(), shape()));
  const auto o = forward.o.matrix(sink_tokens, sink_columns),
             g = d_grad.matrix(sink_tokens, sink_columns);
  attention_sinks_backward<T>(handle, dsinks.flat(), g, o, forward.lse(), forward.sinks.flat(),
                              work.matrix(sink_tokens, sink_heads));
  attention_backward<T>(handle, dqkv.matrix(sink_tokens, sink_qkv), g, o,
                        forward.qkv.matrix(sink_tokens, sink_qkv), forward.lse(), workspace.flat(),
                        shape());
  SinkNumbers of_sinks = reference::finite_difference(
      [&](const SinkNumbers& x) { return reference::dot(reference(qkv, x), grad); }, sinks);
  for (double& d : of_sinks) d += 1;                    // added to what was there
  const auto close = [](std::size_t) { return 1e-8; };  // of the differences
  expect_close(dsinks.values(), of_sinks, close);
  expect_close(
      dqkv.values(),
      reference::finite_difference(
          [&](const SinkNumbers& x) { return reference::dot(reference(x, sinks), grad); }, qkv),
      close);
}

TYPED_TEST(AttentionSinks, DecodeGivesTheRowsOfForward) {
  using T = TypeParam;
  const SinkNumbers qkv = random_numbers<T>(sink_tokens * sink_qkv, 1);
  const SinkNumbers sinks = random_numbers<T>(sink_heads, 2), all = reference(qkv, sinks);
  const DeviceArray<T> d_sinks(sinks);
  SinkNumbers keys, values;
  for (std::int64_t t = 0; t < sink_tokens; ++t)
    for (std::int64_t c = 0; c < sink_columns; ++c) {
      keys.push_back(qkv[at(t * sink_qkv + sink_columns + c)]);
      values.push_back(qkv[at(t * sink_qkv + 2 * sink_columns + c)]);
    }
  const DeviceArray<T> k(keys), v(values), o(sink_samples * sink_columns);
  const DeviceArray<std::int32_t> texts(std::vector<std::int32_t>{0, 1});
  for (std::int64_t position = 0; position < sink_length; ++position) {
    SinkNumbers q, expected;
    for (std::int64_t b = 0; b < sink_samples; ++b)
      for (std::int64_t c = 0; c < sink_columns; ++c) {
        q.push_back(qkv[at((b * sink_length + position) * sink_qkv + c)]);
        expected.push_back(all[at((b * sink_length + position) * sink_columns + c)]);
      }
    const DeviceArray<T> d_q(q);
    const DeviceArray<std::int32_t> positions(
        std::vector<std::int32_t>(2, static_cast<std::int32_t>(position)));
    attention_decode<T>(Exec{}, o.matrix(sink_samples, sink_columns),
                        d_q.matrix(sink_samples, sink_columns),
                        k.cube(sink_samples, sink_length, sink_columns),
                        v.cube(sink_samples, sink_length, sink_columns),
                        {texts.flat(), positions.flat()}, shape(), d_sinks.flat());
    const double unit = static_cast<double>(std::numeric_limits<Accumulate<T>>::epsilon());
    const double stored = sizeof(T) == 2 ? 1.0 / 128 : unit;
    expect_close(o.values(), expected, [&](std::size_t) { return 2 * stored + 100 * unit; });
  }
}

TYPED_TEST(AttentionSinks, RejectWrongShapes) {
  using T = TypeParam;
  using A = Accumulate<T>;
  const Handle handle;
  const DeviceArray<T> o(sink_tokens * sink_columns), sinks(sink_heads);
  const DeviceArray<A> lse(sink_tokens * sink_heads), dsinks(sink_heads),
      work(sink_tokens * sink_heads);
  const auto rows = o.matrix(sink_tokens, sink_columns),
             few = o.matrix(sink_tokens - 1, sink_columns);
  const auto sums = lse.cube(sink_samples, sink_heads, sink_length);
  EXPECT_THROW(attention_sinks_forward<T>(handle, few, sums, sinks.flat()), Error);
  EXPECT_THROW(attention_sinks_forward<T>(handle, rows, sums, part(sinks.flat(), 0, 2)), Error);
  EXPECT_THROW(attention_sinks_backward<T>(handle, dsinks.flat(), few, rows, sums, sinks.flat(),
                                           work.matrix(sink_tokens, sink_heads)),
               Error);
  EXPECT_THROW(attention_sinks_backward<T>(handle, dsinks.flat(), rows, rows, sums, sinks.flat(),
                                           work.matrix(sink_heads, sink_tokens)),
               Error);
}

}  // namespace
}  // namespace trireme::kernels
