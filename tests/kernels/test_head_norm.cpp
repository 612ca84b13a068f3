// Norms of heads against a naive reference in double and finite differences, for whole rows and for
// parts of heads and tokens.
#include <trireme/kernels/head_norm.hpp>

#include <trireme/base/check.hpp>
#include <trireme/kernels/packs.hpp>
#include <trireme/kernels/vector_lanes.hpp>
#include <trireme/tensor/fence.hpp>

#include <kernels/cases.hpp>
#include <reference/finite_difference.hpp>
#include <reference/norm.hpp>
#include <support/device_array.hpp>
#include <support/numbers.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace trireme::kernels {
namespace {

using testing::DeviceArray;
using testing::expect_close;
using testing::random_numbers;

constexpr double head_norm_epsilon = 1e-6;

/// Rows of queries, keys and as many values, and the reference's results for their heads.
template <class T>
struct HeadCase {
  HeadCase(std::int64_t t, std::int64_t h, std::int64_t hkv, std::int64_t k)
      : norm{h, hkv, k, head_norm_epsilon},
        tokens(t),
        columns((h + 2 * hkv) * k),
        qkv(random_numbers<T>(t * columns, 1)),
        dqkv(random_numbers<T>(t * columns, 2)),
        gains{random_numbers<T>(k, 3), random_numbers<T>(k, 4)},
        d_qkv(qkv),
        d_dqkv(dqkv),
        d_query(gains[0]),
        d_key(gains[1]),
        raw(t * norm.columns(), T(NAN)),
        inverse(t * norm.normed(), NAN) {}

  HeadNorm norm;
  std::int64_t tokens, columns;
  std::vector<double> qkv, dqkv, gains[2];
  DeviceArray<T> d_qkv, d_dqkv, d_query, d_key, raw;
  DeviceArray<Accumulate<T>> inverse;

  View2<T> rows(const DeviceArray<T>& x) const { return x.matrix(tokens, columns); }
  View2<T> raw_rows() const { return raw.matrix(tokens, norm.columns()); }
  View2<Accumulate<T>> factors() const { return inverse.matrix(tokens, norm.normed()); }

  void forward() const {
    head_norm_forward<T>(Exec{}, rows(d_qkv), raw_rows(), factors(), d_query.flat(), d_key.flat(),
                         norm);
  }
  void backward_input() const {
    head_norm_backward_input<T>(Exec{}, rows(d_dqkv), raw_rows(), factors(), d_query.flat(),
                                d_key.flat(), norm);
  }

  /// Calls use(head's place in a row of all columns, its kind: queries 0, keys 1).
  template <class Use>
  void for_heads(const Use& use) const {
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t h = 0; h < norm.normed(); ++h)
        use(t, h, t * columns + h * norm.head_size, h < norm.heads ? 0 : 1);
  }
  std::vector<double> head(const std::vector<double>& x, std::int64_t at) const {
    return {x.begin() + at, x.begin() + at + norm.head_size};
  }
  /// As for RMSNorm: a sum of K squares in any order has a relative error of at most K eps; 8 more
  /// for the roundings around it.
  double roundings() const {
    return static_cast<double>(norm.head_size + 8) * std::numeric_limits<T>::epsilon();
  }
};

std::vector<double> normed(const HeadCase<double>& c, std::vector<double> x,
                           const std::vector<double> (&gains)[2]) {
  c.for_heads([&](std::int64_t, std::int64_t, std::int64_t at, int kind) {
    const auto y = reference::rms_norm(c.head(x, at), gains[kind], head_norm_epsilon).y;
    std::copy(y.begin(), y.end(), x.begin() + at);
  });
  return x;
}

template <class T>
class HeadNorms : public ::testing::Test {};
TYPED_TEST_SUITE(HeadNorms, WideTypes);

TYPED_TEST(HeadNorms, ForwardMatchesReferenceAndKeepsBackwardInputs) {
  using T = TypeParam;
  for (const std::int64_t t : small_sizes)
    for (const std::int64_t k : small_sizes)
      for (const auto& [h, hkv] : {std::pair{1, 1}, {3, 1}, {13, 2}}) {
        const HeadCase<T> c(t, h, hkv, k);
        c.forward();
        auto expected = c.qkv;
        std::vector<double> raw, inverse, bounds(expected.size());
        c.for_heads([&](std::int64_t, std::int64_t, std::int64_t at, int kind) {
          const auto x = c.head(c.qkv, at);
          const auto forward = reference::rms_norm(x, c.gains[kind], head_norm_epsilon);
          raw.insert(raw.end(), x.begin(), x.end());
          inverse.push_back(forward.inverse_rms[0]);
          for (std::int64_t d = 0; d < k; ++d) {
            const auto i = static_cast<std::size_t>(at + d);
            expected[i] = forward.y[static_cast<std::size_t>(d)];
            bounds[i] = c.roundings() * std::abs(expected[i]);
          }
        });
        expect_close(c.d_qkv.values(), expected, [&](std::size_t i) { return bounds[i]; });
        expect_close(c.raw.values(), raw, [](std::size_t) { return 0.0; });
        expect_close(c.inverse.values(), inverse,
                     [&](std::size_t i) { return c.roundings() * inverse[i]; });
      }
}

TYPED_TEST(HeadNorms, ForwardWorksWithoutKeptValues) {
  using T = TypeParam;
  const HeadCase<T> kept(3, 4, 2, 24), alone(3, 4, 2, 24);
  kept.forward();
  head_norm_forward<T>(Exec{}, alone.rows(alone.d_qkv), {}, {}, alone.d_query.flat(),
                       alone.d_key.flat(), alone.norm);
  EXPECT_EQ(alone.d_qkv.values(), kept.d_qkv.values());
}

/// |dx| is a difference of two terms, at most inverse_rms times the head's largest |gain dy| times
/// 1 and largest |xhat|². Each has the rounding error of a sum.
TYPED_TEST(HeadNorms, BackwardInputMatchesReferenceAndKeepsValues) {
  using T = TypeParam;
  for (const std::int64_t t : small_sizes)
    for (const std::int64_t k : small_sizes) {
      const HeadCase<T> c(t, 5, 2, k);
      c.forward();
      c.backward_input();
      auto expected = c.dqkv;
      std::vector<double> bounds(expected.size());
      c.for_heads([&](std::int64_t, std::int64_t, std::int64_t at, int kind) {
        const auto x = c.head(c.qkv, at), dy = c.head(c.dqkv, at);
        const auto& gain = c.gains[kind];
        const auto forward = reference::rms_norm(x, gain, head_norm_epsilon);
        const auto dx = reference::rms_norm_backward_input(dy, x, gain, forward);
        double largest = 0, spread = 0;
        for (std::size_t d = 0; d < x.size(); ++d) {
          largest = std::max(largest, std::abs(gain[d] * dy[d]));
          spread = std::max(spread, std::abs(x[d]) * forward.inverse_rms[0]);
        }
        for (std::size_t d = 0; d < x.size(); ++d) {
          const std::size_t i = static_cast<std::size_t>(at) + d;
          expected[i] = dx[d];
          // Twice: inverse_rms here is the kernel's own, with the same error.
          bounds[i] = 2 * c.roundings() * forward.inverse_rms[0] * largest * (1 + spread * spread);
        }
      });
      expect_close(c.d_dqkv.values(), expected, [&](std::size_t i) { return bounds[i]; });
    }
}

TYPED_TEST(HeadNorms, BackwardWeightMatchesReferenceAndAdds) {
  using T = TypeParam;
  for (const std::int64_t t : {1, 13, 128, 700})
    for (const std::int64_t k : {1, 13, 128, 300}) {
      const HeadCase<T> c(t, 5, 2, k);
      c.forward();
      std::vector<double> start[2] = {random_numbers<T>(k, 6), random_numbers<T>(k, 7)};
      const DeviceArray<Accumulate<T>> query(start[0]), key(start[1]);
      std::vector<double> sums[2] = {start[0], start[1]}, magnitudes[2] = {start[0], start[1]};
      for (auto& of_kind : magnitudes)
        for (double& x : of_kind) x = std::abs(x);
      c.for_heads([&](std::int64_t, std::int64_t, std::int64_t at, int kind) {
        const auto x = c.head(c.qkv, at), dy = c.head(c.dqkv, at);
        const double inverse =
            reference::rms_norm(x, c.gains[kind], head_norm_epsilon).inverse_rms[0];
        for (std::size_t d = 0; d < x.size(); ++d) {
          sums[kind][d] += dy[d] * x[d] * inverse;
          magnitudes[kind][d] += std::abs(dy[d] * x[d] * inverse);
        }
      });
      head_norm_backward_weight<T>(Handle{}, query.flat(), key.flat(), c.rows(c.d_dqkv),
                                   c.raw_rows(), c.factors(), c.norm);
      EXPECT_EQ(c.d_dqkv.values(), DeviceArray<T>(c.dqkv).values()) << "it only reads";
      // n terms summed in any order, each with three roundings and the error of inverse_rms.
      const auto bound = [&](int kind, std::size_t d) {
        const auto n = static_cast<double>(t * (kind == 0 ? 5 : 2));
        return (n + 4) * std::numeric_limits<T>::epsilon() * magnitudes[kind][d] +
               c.roundings() * magnitudes[kind][d];
      };
      expect_close(query.values(), sums[0], [&](std::size_t d) { return bound(0, d); });
      expect_close(key.values(), sums[1], [&](std::size_t d) { return bound(1, d); });
    }
}

/// The results for a part of the heads, or of the tokens, have the bits of the whole.
TYPED_TEST(HeadNorms, PartsHaveTheSameBits) {
  using T = TypeParam;
  const HeadCase<T> whole(9, 4, 2, 24);
  const HeadNorm part{1, 1, 24, head_norm_epsilon};  // the last head of queries, the first of keys
  std::vector<T> mine;
  const auto all = whole.d_qkv.values();
  for (std::int64_t t = 4; t < 9; ++t)
    mine.insert(mine.end(), all.begin() + t * whole.columns + 3 * 24,
                all.begin() + t * whole.columns + 5 * 24);
  const DeviceArray<T> x(mine);
  head_norm_forward<T>(Exec{}, x.matrix(5, 48), {}, {}, whole.d_query.flat(), whole.d_key.flat(),
                       part);
  whole.forward();
  const auto found = x.values(), expected = whole.d_qkv.values();
  for (std::int64_t t = 0; t < 5; ++t)
    for (std::int64_t c = 0; c < 48; ++c)
      ASSERT_EQ(found[static_cast<std::size_t>(t * 48 + c)],
                expected[static_cast<std::size_t>((4 + t) * whole.columns + 3 * 24 + c)]);
}

TEST(HeadNormGradient, BackwardMatchesFiniteDifferences) {
  for (const std::int64_t k : small_sizes) {
    const HeadCase<double> c(2, 2, 1, k);
    const auto loss = [&](const std::vector<double>& x, const std::vector<double>& query,
                          const std::vector<double>& key) {
      return reference::dot(c.dqkv, normed(c, x, {query, key}));
    };
    c.forward();
    const DeviceArray<double> query(k), key(k);
    head_norm_backward_weight<double>(Handle{}, query.flat(), key.flat(), c.rows(c.d_dqkv),
                                      c.raw_rows(), c.factors(), c.norm);
    c.backward_input();
    // As for RMSNorm (test_rms_norm.cpp): three derivatives of at most 3 inverse_rms each, and
    // cancellation of a sum of as many terms as there are numbers.
    double size = 0, largest_gain = 1;  // of values too, which stay unchanged
    for (const auto& gain : c.gains)
      for (const double g : gain) largest_gain = std::max(largest_gain, std::abs(g));
    for (const double dy : c.dqkv) size += 3 * std::abs(dy) * largest_gain;
    const auto inverse = c.inverse.values();
    const double steepness = 3 * *std::max_element(inverse.begin(), inverse.end());
    const double h = reference::difference_step;
    const double bound =
        8 * std::numeric_limits<double>::epsilon() * size * static_cast<double>(c.qkv.size()) / h +
        h * h / 6 * std::pow(steepness, 3) * size;
    ASSERT_LT(bound, 2e-3);  // otherwise the comparison would mean nothing
    const auto close = [&](std::size_t) { return bound; };
    expect_close(c.d_dqkv.values(),
                 reference::finite_difference(
                     [&](const auto& x) { return loss(x, c.gains[0], c.gains[1]); }, c.qkv),
                 close);
    expect_close(query.values(),
                 reference::finite_difference(
                     [&](const auto& gain) { return loss(c.qkv, gain, c.gains[1]); }, c.gains[0]),
                 close);
    expect_close(key.values(),
                 reference::finite_difference(
                     [&](const auto& gain) { return loss(c.qkv, c.gains[0], gain); }, c.gains[1]),
                 close);
  }
}

TYPED_TEST(HeadNorms, AcceptNoTokensAndNoHeads) {
  using T = TypeParam;
  for (const HeadCase<T>& c : {HeadCase<T>(0, 4, 2, 24), {3, 0, 0, 24}, {3, 0, 2, 24}}) {
    const DeviceArray<Accumulate<T>> query(24, 7.0), key(24, 7.0);
    c.forward();
    head_norm_backward_weight<T>(Handle{}, query.flat(), key.flat(), c.rows(c.d_dqkv), c.raw_rows(),
                                 c.factors(), c.norm);
    c.backward_input();
    EXPECT_EQ(query.values(), std::vector<Accumulate<T>>(24, 7));
    const bool has_keys = c.tokens * c.norm.key_value_heads > 0;
    EXPECT_EQ(key.values() != query.values(), has_keys);
  }
}

TYPED_TEST(HeadNorms, RejectWrongShapes) {
  using T = TypeParam;
  const HeadCase<T> c(3, 4, 2, 24);
  HeadNorm more = c.norm, other = c.norm;
  more.heads = 7;
  other.head_size = 12;
  for (const HeadNorm& wrong : {more, other}) {
    EXPECT_THROW(head_norm_forward<T>(Exec{}, c.rows(c.d_qkv), c.raw_rows(), c.factors(),
                                      c.d_query.flat(), c.d_key.flat(), wrong),
                 Error);
    EXPECT_THROW(head_norm_backward_input<T>(Exec{}, c.rows(c.d_dqkv), c.raw_rows(), c.factors(),
                                             c.d_query.flat(), c.d_key.flat(), wrong),
                 Error);
  }
  EXPECT_THROW(head_norm_forward<T>(Exec{}, c.rows(c.d_qkv), c.raw_rows(), {}, c.d_query.flat(),
                                    c.d_key.flat(), c.norm),
               Error);
}

/// A row's function of lanes, run on vectors as on devices.
struct SquareRows {
  View2<double> x;
  View1<double> sums;

  template <class Lanes>
  KOKKOS_FUNCTION void operator()(const Lanes& lanes, std::int64_t row, std::int64_t part) const {
    double* values = row_of(x, row) + part * 6;
    const double sum = sum_of<double>(
        lanes, 6, [](std::int64_t, double v) { return v * v; }, values);
    once(lanes, [&]() { sums(row * 2 + part) += sum; });
    map_lanes(
        lanes, 6, values, [&](std::int64_t i, double v) { return v * v + double(i); }, values);
  }
};

TEST(VectorLanes, MatchTeams) {
  const std::int64_t rows = 7;
  const auto numbers = random_numbers<double>(rows * 12, 1);
  const DeviceArray<double> x(numbers), sums(rows * 2);
  detail::launch_parts("kernels/test", Exec{}, rows, 2,
                       SquareRows{x.matrix(rows, 12), sums.flat()});
  fence(Exec{}, "test");
  std::vector<double> expected, squares(static_cast<std::size_t>(rows * 2));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    expected.push_back(numbers[i] * numbers[i] + static_cast<double>(i % 6));
    squares[i / 6] += numbers[i] * numbers[i];
  }
  // A sum of six squares in any order, and one rounding more or less in each product of a sum.
  const double eps = std::numeric_limits<double>::epsilon();
  expect_close(x.values(), expected, [&](std::size_t i) { return 2 * eps * expected[i]; });
  expect_close(sums.values(), squares, [&](std::size_t i) { return 8 * eps * squares[i]; });
}

}  // namespace
}  // namespace trireme::kernels
