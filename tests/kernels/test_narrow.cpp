#include <trireme/base/kernel_memory.hpp>
#include <trireme/kernels/attention.hpp>
#include <trireme/kernels/cache.hpp>
#include <trireme/kernels/cross_entropy.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/embedding.hpp>
#include <trireme/kernels/head_norm.hpp>
#include <trireme/kernels/matmul.hpp>
#include <trireme/kernels/norm.hpp>
#include <trireme/kernels/rotary.hpp>
#include <trireme/kernels/update.hpp>

#include "kernels/cases.hpp"
#include "support/device_array.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <tuple>

/// Kernels of two-byte numbers compared with those of float, which are tested against naive ones:
/// the same sums in float, and only stored numbers are rounded.
namespace trireme::kernels {
namespace {

using namespace trireme::testing;

/// The same numbers in T and in float.
template <class T>
struct Both {
  DeviceArray<T> narrow;
  DeviceArray<float> wide;

  explicit Both(std::int64_t n, float value = 0) : narrow(n, T(value)), wide(n, value) {}
  Both(std::int64_t n, unsigned seed) : narrow(uniform<T>(n, seed)), wide(narrow.values()) {}

  template <class U>
  const DeviceArray<U>& get() const {
    if constexpr (std::is_same_v<U, float>)
      return wide;
    else
      return narrow;
  }
};

/// The two differ by one rounding and a few units in the last place of float; `sums` is the size of
/// the summed terms.
template <class T>
void expect_rounded(const DeviceArray<T>& found, const DeviceArray<float>& expected,
                    float sums = 1) {
  constexpr float unit =
      std::is_same_v<T, Bf16> ? 1.0F / 128 : 1.0F / 1024;  // between 1 and the next
  const auto a = found.values();
  const auto b = expected.values();
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    ASSERT_NEAR(static_cast<float>(a[i]), b[i], 0.5F * unit * std::abs(b[i]) + 1e-5F * sums + 6e-8F)
        << "element " << i;
}
/// Sums of both in float.
void expect_equal_sums(const DeviceArray<float>& found, const DeviceArray<float>& expected) {
  const auto a = found.values();
  const auto b = expected.values();
  for (std::size_t i = 0; i < a.size(); ++i)
    ASSERT_NEAR(a[i], b[i], 2e-5F * (1 + std::abs(b[i]))) << "element " << i;
}

template <class T>
class NarrowKernels : public ::testing::Test {
 protected:
  static constexpr std::int64_t some_rows = 13, some_columns = 77;
  static Both<T> random(std::int64_t n = some_rows * some_columns) { return {n, ++seed_}; }
  static auto fill(float value, std::int64_t n = some_rows * some_columns) {
    return Both<T>(n, value);
  }
  /// Native attention, which rounds probabilities, has tests of its own.
  const Handle handle{KernelChoice().set_attention(dtype_of<T>, {})};

 private:
  static unsigned seed_;
};
template <class T>
unsigned NarrowKernels<T>::seed_ = 7;

TYPED_TEST_SUITE(NarrowKernels, NarrowTypes);

/// Calls f<T>() and f<float>().
template <class T, class F>
void in_both(const F& f) {
  f.template operator()<T>();
  f.template operator()<float>();
}

TYPED_TEST(NarrowKernels, ElementwiseMatchesRoundedFloat) {
  using N = TypeParam;
  constexpr auto R = TestFixture::some_rows, C = TestFixture::some_columns;
  const Handle& e = this->handle;
  const auto x = TestFixture::random(), z = TestFixture::random(),
             gate = TestFixture::random(2 * R * C);
  const auto y1 = TestFixture::fill(0), y2 = TestFixture::fill(0), y3 = TestFixture::fill(0),
             y4 = TestFixture::fill(0), y5 = TestFixture::fill(0),
             y6 = TestFixture::fill(0, 2 * R * C);
  const Dropout dropout{0.25, {5, Purpose::dropout, 1, 2}, 3};
  in_both<N>([&]<class T>() {
    const auto m = [&](const Both<N>& b) { return b.template get<T>().matrix(R, C); };
    const auto twice = [&](const Both<N>& b) { return b.template get<T>().matrix(R, 2 * C); };
    gelu_forward<T>(e, m(y1), m(x));
    gelu_backward<T>(e, m(y2), m(z), m(x));
    residual_dropout_forward<T>(e, m(y3), m(x), m(z), dropout);
    dropout_backward<T>(e, m(y4), m(x), dropout);
    swiglu_forward<T>(e, m(y5), twice(gate));
    swiglu_backward<T>(e, twice(y6), m(z), twice(gate));
  });
  for (const auto* y : {&y1, &y2, &y3, &y4, &y5, &y6}) expect_rounded(y->narrow, y->wide);
  in_both<N>([&]<class T>() {
    accumulate<T>(e, z.template get<T>().flat(), x.template get<T>().flat());
    scale<T>(e, x.template get<T>().flat(), 0.3);
  });
  expect_rounded(z.narrow, z.wide);
  expect_rounded(x.narrow, x.wide);
}

TYPED_TEST(NarrowKernels, NormsMatchRoundedFloat) {
  using N = TypeParam;
  constexpr auto R = TestFixture::some_rows, C = TestFixture::some_columns;
  const Handle& e = this->handle;
  const auto x = TestFixture::random(), dy = TestFixture::random(), gain = TestFixture::random(C),
             bias = TestFixture::random(C);
  const auto y = TestFixture::fill(0), dx = TestFixture::fill(0.5), root_y = TestFixture::fill(0),
             root_dx = TestFixture::fill(0);
  std::vector<DeviceArray<float>> sums;  // gain, bias and gain of the two norms
  in_both<N>([&]<class T>() {
    const auto m = [&](const Both<N>& b) { return b.template get<T>().matrix(R, C); };
    const auto v = [&](const Both<N>& b) { return b.template get<T>().flat(); };
    const DeviceArray<float> mean(R), inverse(R), dgain(C), dbias(C), root_dgain(C);
    layer_norm_forward<T>(e, m(y), mean.flat(), inverse.flat(), m(x), v(gain), v(bias), 1e-5);
    layer_norm_backward_input<T>(e, m(dx), m(dy), m(x), mean.flat(), inverse.flat(), v(gain), true);
    layer_norm_backward_weight<T>(e, dgain.flat(), dbias.flat(), m(dy), m(x), mean.flat(),
                                  inverse.flat());
    rms_norm_forward<T>(e, m(root_y), inverse.flat(), m(x), v(gain), 0, 1e-5);
    rms_norm_backward_input<T>(e, m(root_dx), m(dy), m(x), inverse.flat(), v(gain), 0, false);
    rms_norm_backward_weight<T>(e, root_dgain.flat(), m(dy), m(x), inverse.flat());
    sums.insert(sums.end(), {dgain, dbias, root_dgain});
  });
  for (const auto* b : {&y, &dx, &root_y, &root_dx}) expect_rounded(b->narrow, b->wide);
  for (std::size_t i = 0; i < 3; ++i) expect_equal_sums(sums[i], sums[i + 3]);
}

TYPED_TEST(NarrowKernels, HeadNormsMatchRoundedFloat) {
  using N = TypeParam;
  constexpr std::int64_t R = 13, K = 24, C = 5 * K;
  const HeadNorm norm{3, 1, K};
  const Handle& e = this->handle;
  const auto x = TestFixture::random(R * C), dy = TestFixture::random(R * C),
             query = TestFixture::random(K), key = TestFixture::random(K);
  std::vector<DeviceArray<float>> sums;
  in_both<N>([&]<class T>() {
    const auto m = [&](const Both<N>& b) { return b.template get<T>().matrix(R, C); };
    const auto v = [&](const Both<N>& b) { return b.template get<T>().flat(); };
    const DeviceArray<T> raw(R * 4 * K);
    const DeviceArray<float> inverse(R * 4), dquery(K), dkey(K);
    const auto kept = raw.matrix(R, 4 * K);
    const auto factors = inverse.matrix(R, 4);
    head_norm_forward<T>(e, m(x), kept, factors, v(query), v(key), norm);
    head_norm_backward_weight<T>(e, dquery.flat(), dkey.flat(), m(dy), kept, factors, norm);
    head_norm_backward_input<T>(e, m(dy), kept, factors, v(query), v(key), norm);
    sums.insert(sums.end(), {dquery, dkey});
  });
  expect_rounded(x.narrow, x.wide);
  expect_rounded(dy.narrow, dy.wide);
  for (std::size_t i = 0; i < 2; ++i) expect_equal_sums(sums[i], sums[i + 2]);
}

TYPED_TEST(NarrowKernels, EmbeddingAndRotaryPositionsMatchRoundedFloat) {
  using N = TypeParam;
  constexpr std::int64_t R = 13, C = 76;
  const Handle& e = this->handle;
  const DeviceArray<std::int32_t> tokens(
      std::vector<std::int32_t>{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9});
  const auto table = TestFixture::random(10 * C), positions = TestFixture::random(5 * C),
             dx = TestFixture::random(R * C);
  const auto x = TestFixture::fill(0, R * C);
  std::vector<DeviceArray<float>> sums;
  in_both<N>([&]<class T>() {
    const auto m = [&](const Both<N>& b, std::int64_t n) {
      return b.template get<T>().matrix(n, C);
    };
    const DeviceArray<float> dtable(10 * C), dpositions(5 * C);
    embedding_lookup<T>(e, m(x, R), tokens.flat(), m(table, 10), 0);
    add_positions<T>(e, m(x, R), m(positions, 5), 5, 2);
    embedding_lookup_backward<T>(e, dtable.matrix(10, C), m(dx, R), tokens.flat(), 0);
    positions_backward<T>(e, dpositions.matrix(5, C), m(dx, R), 5, 2);
    sums.insert(sums.end(), {dtable, dpositions});
  });
  expect_rounded(x.narrow, x.wide);
  for (std::size_t i = 0; i < 2; ++i) expect_equal_sums(sums[i], sums[i + 2]);
  const auto y = TestFixture::random(R * C);
  in_both<N>([&]<class T>() {
    rotary_forward<T>(e, y.template get<T>().matrix(R, C), {3, 24, 10000.0, 5, 1, 2});
  });
  expect_rounded(y.narrow, y.wide);
}

/// Queries in three blocks, so that the sums of their gradients stay in float between blocks.
TYPED_TEST(NarrowKernels, AttentionMatchesRoundedFloat) {
  using N = TypeParam;
  const Handle& e = this->handle;
  AttentionShape shape;
  shape.batch = 2;
  shape.sequence = 150;
  shape.heads = 4;
  shape.key_value_heads = 2;
  shape.head_size = 24;
  const std::int64_t tokens = shape.tokens(), columns = shape.heads * shape.head_size;
  const AttentionDropout dropout{0.1, {5, Purpose::attention_dropout, 1, 2}, 3, 0, 4};
  const auto qkv = TestFixture::random(tokens * shape.qkv_columns()),
             grad = TestFixture::random(tokens * columns),
             o = TestFixture::fill(0, tokens * columns),
             dqkv = TestFixture::fill(0, tokens * shape.qkv_columns());
  for (const bool causal : {true, false}) {
    shape.causal = causal;
    const DeviceArray<float> statistics(tokens * shape.heads);
    const auto lse = statistics.cube(shape.batch, shape.heads, shape.sequence);
    attention_forward<N>(e, o.narrow.matrix(tokens, columns), lse,
                         qkv.narrow.matrix(tokens, shape.qkv_columns()), shape, dropout);
    attention_forward<float>(e, o.wide.matrix(tokens, columns), lse,
                             qkv.wide.matrix(tokens, shape.qkv_columns()), shape, dropout);
    expect_rounded(o.narrow, o.wide);
    const auto rounded = o.narrow.values();  // the same output for both
    const DeviceArray<float> same(rounded);
    const DeviceArray<float> work(attention_workspace_elements<N>(e.choice(), shape), NAN),
        wide_work(attention_workspace_elements<float>(e.choice(), shape), NAN);
    attention_backward<N>(e, dqkv.narrow.matrix(tokens, shape.qkv_columns()),
                          grad.narrow.matrix(tokens, columns), o.narrow.matrix(tokens, columns),
                          qkv.narrow.matrix(tokens, shape.qkv_columns()), lse, work.flat(), shape,
                          dropout);
    attention_backward<float>(e, dqkv.wide.matrix(tokens, shape.qkv_columns()),
                              grad.wide.matrix(tokens, columns), same.matrix(tokens, columns),
                              qkv.wide.matrix(tokens, shape.qkv_columns()), lse, wide_work.flat(),
                              shape, dropout);
    expect_rounded(dqkv.narrow, dqkv.wide);
  }
}

TYPED_TEST(NarrowKernels, EncoderKernelsMatchRoundedFloat) {
  using N = TypeParam;
  constexpr auto R = TestFixture::some_rows, C = TestFixture::some_columns;
  const Handle& e = this->handle;
  const auto x = TestFixture::random(), dy = TestFixture::random(),
             table = TestFixture::random(2 * C);
  const auto y1 = TestFixture::fill(0), y2 = TestFixture::fill(0), y3 = TestFixture::fill(0),
             y4 = TestFixture::fill(0), y5 = TestFixture::fill(0), y6 = TestFixture::fill(0);
  const DeviceArray<std::int32_t> segments(
      std::vector<std::int32_t>{0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1});
  const DeviceArray<std::int32_t> places(
      std::vector<std::int32_t>{12, 3, 0, 7, 1, 2, 4, 5, 6, 8, 9, 10, 11});
  std::vector<DeviceArray<float>> sums;
  in_both<N>([&]<class T>() {
    const auto m = [&](const Both<N>& b) { return b.template get<T>().matrix(R, C); };
    const DeviceArray<float> dtable(2 * C);
    gelu_forward<T>(e, m(y1), m(x), Gelu::exact);
    gelu_backward<T>(e, m(y2), m(dy), m(x), Gelu::exact);
    tanh_forward<T>(e, m(y3), m(x));
    tanh_backward<T>(e, m(y4), m(dy), m(x));
    pick_rows<T>(e, m(y5), m(x), places.flat(), 0);
    place_rows<T>(e, m(y6), m(dy), places.flat(), 0);
    add_segments<T>(e, m(y6), table.template get<T>().matrix(2, C), segments.flat(), 0);
    segments_backward<T>(e, dtable.matrix(2, C), m(dy), segments.flat(), 0);
    sums.push_back(dtable);
  });
  for (const auto* y : {&y1, &y2, &y3, &y4, &y5, &y6}) expect_rounded(y->narrow, y->wide);
  expect_equal_sums(sums[0], sums[1]);
}

/// The token after 69 others: two blocks of keys.
TYPED_TEST(NarrowKernels, DecodingMatchesRoundedFloat) {
  using N = TypeParam;
  const Handle& e = this->handle;
  AttentionShape shape;
  shape.batch = 2;
  shape.sequence = 1;
  shape.heads = 4;
  shape.key_value_heads = 2;
  shape.head_size = 24;
  const std::int64_t columns = shape.heads * shape.head_size, most = 80;
  const std::int64_t width = shape.key_value_heads * shape.head_size;
  const auto qkv = TestFixture::random(shape.batch * shape.qkv_columns()),
             keys = TestFixture::random(shape.batch * most * width),
             values = TestFixture::random(shape.batch * most * width);
  std::vector<std::int32_t> each(static_cast<std::size_t>(shape.batch));
  std::iota(each.begin(), each.end(), 0);
  const DeviceArray<std::int32_t> texts(each);
  const DeviceArray<std::int32_t> positions(std::vector<std::int32_t>(each.size(), 69));
  const CacheRows places{texts.flat(), positions.flat()};
  const auto q = TestFixture::fill(0, shape.batch * columns),
             o = TestFixture::fill(0, shape.batch * columns);
  in_both<N>([&]<class T>() {
    const auto cache = [&](const Both<N>& b) {
      return b.template get<T>().cube(shape.batch, most, width);
    };
    const auto rows = [&](const Both<N>& b) {
      return b.template get<T>().matrix(shape.batch, columns);
    };
    cache_append<T>(e, rows(q), cache(keys), cache(values),
                    qkv.template get<T>().matrix(shape.batch, shape.qkv_columns()), places);
    attention_decode<T>(e, rows(o), rows(q), cache(keys), cache(values), places, shape);
  });
  expect_rounded(q.narrow, q.wide, 0);
  expect_rounded(o.narrow, o.wide);
}

TYPED_TEST(NarrowKernels, CrossEntropyReadsFloatLogitsAndScalesTheLoss) {
  using N = TypeParam;
  constexpr auto R = TestFixture::some_rows, C = TestFixture::some_columns;
  const Handle& e = this->handle;
  const DeviceArray<float> logits(uniform<float>(R * C, 3));
  const DeviceArray<std::int32_t> targets(std::vector<std::int32_t>(R, 5));
  const DeviceArray<double> statistics(3 * R), merged(3 * R), loss(R),
      loss_scale(std::vector<double>{1024});
  cross_entropy_statistics<float>(e, statistics.matrix(R, 3), logits.matrix(R, C), targets.flat(),
                                  0);
  cross_entropy_merge(e, loss.flat(), merged.matrix(R, 3),
                      View3<const double>(statistics.data(), 1, R, 3));
  const auto gradient = TestFixture::fill(0);
  in_both<N>([&]<class T>() {
    cross_entropy_gradient<T>(e, gradient.template get<T>().matrix(R, C), logits.matrix(R, C),
                              merged.matrix(R, 3), targets.flat(), 0, 1.0 / R, loss_scale.flat());
  });
  expect_rounded(gradient.narrow, gradient.wide);
  EXPECT_NEAR(gradient.wide.values()[5], 1024.0 / R * std::expm1(-loss.values()[0]), 1e-3);
}

/// Beyond one block of widened operands in every direction.
TYPED_TEST(NarrowKernels, MatrixProductsMatchRoundedFloat) {
  using N = TypeParam;
  const Handle& e = this->handle;
  using Shape = std::tuple<std::int64_t, std::int64_t, std::int64_t>;
  for (const auto& [m, n, k] :
       {Shape{1, 1, 1}, Shape{13, 128, 77}, Shape{widened_block + 3, 5, 9},
        Shape{7, widened_block + 1, 10}, Shape{6, 8, 2 * widened_block + 5}})
    for (const auto ta : {Transpose::no, Transpose::yes})
      for (const auto tb : {Transpose::no, Transpose::yes}) {
        const auto a = TestFixture::random(m * k), b = TestFixture::random(k * n),
                   c = TestFixture::random(m * n);
        in_both<N>([&, m = m, n = n, k = k]<class T>() {
          const auto of = [](const DeviceArray<T>& x, Transpose t, auto r, auto s) {
            return t == Transpose::yes ? x.matrix(s, r) : x.matrix(r, s);
          };
          matmul<T>(e, c.template get<T>().matrix(m, n), of(a.template get<T>(), ta, m, k),
                    of(b.template get<T>(), tb, k, n), ta, tb, 0.5, 2.0);
        });
        expect_rounded(c.narrow, c.wide, std::sqrt(static_cast<float>(k)));
      }
}

TYPED_TEST(NarrowKernels, LinearLayersAddGradientsInFloat) {
  using N = TypeParam;
  constexpr std::int64_t T_ = 70, M = 33, O = 21;
  const Handle& e = this->handle;
  const auto x = TestFixture::random(T_ * M), w = TestFixture::random(O * M),
             bias = TestFixture::random(O), dy = TestFixture::random(T_ * O);
  const auto y = TestFixture::fill(0, T_ * O), dx = TestFixture::fill(0, T_ * M);
  std::vector<DeviceArray<float>> sums;
  in_both<N>([&]<class T>() {
    const auto m = [&](const Both<N>& b, std::int64_t r, std::int64_t c) {
      return b.template get<T>().matrix(r, c);
    };
    const DeviceArray<float> logits(T_ * O), dw(O * M, 0.25F), dbias(O, 0.25F);
    linear_forward<T>(e, m(y, T_, O), m(x, T_, M), m(w, O, M), bias.template get<T>().flat());
    linear_forward_wide<T>(e, logits.matrix(T_, O), m(x, T_, M), m(w, O, M),
                           bias.template get<T>().flat());
    linear_backward_input<T>(e, m(dx, T_, M), m(dy, T_, O), m(w, O, M));
    linear_backward_weight<T>(e, dw.matrix(O, M), dbias.flat(), m(dy, T_, O), m(x, T_, M));
    sums.insert(sums.end(), {logits, dw, dbias});
  });
  expect_rounded(y.narrow, y.wide);
  expect_rounded(dx.narrow, dx.wide);
  for (std::size_t i = 0; i < 3; ++i) expect_equal_sums(sums[i], sums[i + 3]);
}

TYPED_TEST(NarrowKernels, ConversionsMatchRoundedFloat) {
  using N = TypeParam;
  const Handle& e = this->handle;
  const DeviceArray<float> from(uniform<float>(5000, 4)), back(5000);
  const DeviceArray<N> to(5000);
  convert<N, float>(e, to.flat(), from.flat());
  convert<float, N>(e, back.flat(), to.flat());
  expect_rounded(to, from, 0);
  const auto narrow_values = to.values();
  EXPECT_EQ(std::vector<float>(narrow_values.begin(), narrow_values.end()), back.values());
  const DeviceArray<double> narrow(norm_blocks(5000)), wide(norm_blocks(5000));
  squared_norm_blocks<N>(e, narrow.flat(), to.flat());
  squared_norm_blocks<float>(e, wide.flat(), back.flat());
  EXPECT_EQ(narrow.values(), wide.values());
}

}  // namespace
}  // namespace trireme::kernels
