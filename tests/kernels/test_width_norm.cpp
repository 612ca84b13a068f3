// Norms of all queries and of all keys of a token against a naive reference in double. The ranks of
// a tensor axis take turns in one process: each has a part of the columns.
#include <trireme/kernels/width_norm.hpp>

#include <kernels/cases.hpp>
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

constexpr double width_epsilon = 1e-6;

/// The columns of a rank: `queries` queries from `query` on, and `keys` keys from `key` on. The
/// first `before` columns of keys are also on the rank before, the last `after` on the next rank.
struct Held {
  std::int64_t query, queries, key, keys, before = 0, after = 0;
};

/// Queries, keys and values of `tokens` tokens, and their gradients.
struct Whole {
  std::int64_t tokens, queries, keys;
  std::vector<double> x[2], dy[2], gain[2];  // of queries, of keys

  template <class T>
  static Whole make(std::int64_t tokens, std::int64_t queries, std::int64_t keys) {
    Whole w{tokens, queries, keys, {}, {}, {}};
    for (const int p : {0, 1}) {
      const std::int64_t n = p == 0 ? queries : keys;
      w.x[p] = random_numbers<T>(tokens * n, 1 + p);
      w.dy[p] = random_numbers<T>(tokens * n, 3 + p);
      w.gain[p] = random_numbers<T>(n, 5 + p);
    }
    return w;
  }
};

/// A rank: its columns, beside two columns of values.
template <class T>
class Rank {
 public:
  using Acc = Accumulate<T>;

  Rank(const Whole& whole, const Held& held, double offset)
      : whole_(whole),
        held_(held),
        columns_(held.queries + held.keys + 2),
        x_(rows_of(whole.x, 7)),
        dy_(rows_of(whole.dy, 9)),
        gains_{DeviceArray<T>(gain(0)), DeviceArray<T>(gain(1))},
        raw(whole.tokens * (held.queries + held.keys), T(NAN)),
        inverse(2 * whole.tokens, NAN),
        products(2 * whole.tokens, NAN),
        dgain{DeviceArray<Acc>(held.queries), DeviceArray<Acc>(held.keys)} {
    norm_ = {held.queries, held.keys, whole.queries, whole.keys, held.before};
    norm_.epsilon = width_epsilon;
    norm_.gain_offset = offset;
  }

  void squares() { width_norm_squares<T>(Exec{}, sums(inverse), raw_rows(), rows(x_), norm_); }
  void forward() {
    width_norm_factors<T>(Exec{}, sums(inverse), norm_);
    width_norm_forward<T>(Exec{}, rows(x_), sums(inverse), gains_[0].flat(), gains_[1].flat(),
                          norm_);
  }
  void products_of_rows() {
    width_norm_backward_weight<T>(Handle{}, dgain[0].flat(), dgain[1].flat(), rows(dy_), raw_rows(),
                                  sums(inverse), norm_);
    width_norm_products<T>(Exec{}, sums(products), rows(dy_), raw_rows(), sums(inverse),
                           gains_[0].flat(), gains_[1].flat(), norm_);
  }
  void backward() {
    width_norm_backward_input<T>(Exec{}, rows(dy_), raw_rows(), sums(inverse), sums(products),
                                 gains_[0].flat(), gains_[1].flat(), norm_);
  }

  /// Adds this rank's columns of the queries or keys to those of the whole rows.
  void add_columns(const DeviceArray<T>& from, int p, std::vector<double>& to, bool all) const {
    const auto values = from.values();
    const std::int64_t n = p == 0 ? held_.queries : held_.keys;
    const std::int64_t first = p == 0 ? held_.query : held_.key;
    const std::int64_t skip = all || p == 0 ? 0 : held_.before;
    const std::int64_t width = p == 0 ? whole_.queries : whole_.keys;
    for (std::int64_t t = 0; t < whole_.tokens; ++t)
      for (std::int64_t c = skip; c < n; ++c)
        to[static_cast<std::size_t>(t * width + first + c)] += static_cast<double>(
            values[static_cast<std::size_t>(t * columns_ + (p == 0 ? 0 : held_.queries) + c)]);
  }
  const DeviceArray<T>& x() const { return x_; }
  const DeviceArray<T>& dy() const { return dy_; }
  /// The two columns that the norm must not change.
  std::vector<double> others(const DeviceArray<T>& of) const {
    const auto values = of.values();
    std::vector<double> found;
    for (std::int64_t t = 0; t < whole_.tokens; ++t)
      for (std::int64_t c = columns_ - 2; c < columns_; ++c)
        found.push_back(static_cast<double>(values[static_cast<std::size_t>(t * columns_ + c)]));
    return found;
  }

 private:
  std::vector<double> gain(int p) const {
    const auto first = whole_.gain[p].begin() + (p == 0 ? held_.query : held_.key);
    return {first, first + (p == 0 ? held_.queries : held_.keys)};
  }
  /// Columns that two ranks have receive half of the gradient on each.
  DeviceArray<T> rows_of(const std::vector<double> (&from)[2], int seed) const {
    const bool gradient = &from == &whole_.dy;
    auto values = random_numbers<T>(whole_.tokens * columns_, seed);
    for (std::int64_t t = 0; t < whole_.tokens; ++t)
      for (std::int64_t c = 0; c < held_.queries + held_.keys; ++c) {
        const bool key = c >= held_.queries;
        const std::int64_t i = key ? held_.key + c - held_.queries : held_.query + c;
        const std::int64_t of_keys = c - held_.queries;
        const bool both = key && (of_keys < held_.before || of_keys >= held_.keys - held_.after);
        values[static_cast<std::size_t>(t * columns_ + c)] =
            from[key ? 1 : 0]
                [static_cast<std::size_t>(t * (key ? whole_.keys : whole_.queries) + i)] *
            (gradient && both ? 0.5 : 1.0);
      }
    return DeviceArray<T>(values);
  }

  View2<T> rows(const DeviceArray<T>& of) const { return of.matrix(whole_.tokens, columns_); }
  View2<T> raw_rows() const { return raw.matrix(whole_.tokens, held_.queries + held_.keys); }
  View2<Acc> sums(const DeviceArray<Acc>& of) const { return of.matrix(2, whole_.tokens); }

  const Whole& whole_;
  Held held_;
  std::int64_t columns_;
  DeviceArray<T> x_, dy_, gains_[2];
  WidthNorm norm_;

 public:
  DeviceArray<T> raw;
  DeviceArray<Acc> inverse, products;
  DeviceArray<Acc> dgain[2];
};

/// As the message of the tensor axis does.
template <class T>
void add_up(DeviceArray<Accumulate<T>>& a, DeviceArray<Accumulate<T>>& b) {
  std::vector<double> sum;
  const auto first = a.values(), second = b.values();
  for (std::size_t i = 0; i < first.size(); ++i)
    sum.push_back(static_cast<double>(first[i]) + static_cast<double>(second[i]));
  a = DeviceArray<Accumulate<T>>(sum);
  b = DeviceArray<Accumulate<T>>(sum);
}

template <class T>
class WidthNorms : public ::testing::Test {};
TYPED_TEST_SUITE(WidthNorms, WideTypes);

template <class T>
void expect_two_ranks_match_the_reference(const Whole& whole, const Held& a, const Held& b,
                                          double offset) {
  Rank<T> first(whole, a, offset), second(whole, b, offset);
  first.squares();
  second.squares();
  add_up<T>(first.inverse, second.inverse);
  const auto untouched = first.others(first.x());
  first.forward();
  second.forward();
  EXPECT_EQ(first.others(first.x()), untouched);
  first.products_of_rows();
  second.products_of_rows();
  add_up<T>(first.products, second.products);
  first.backward();
  second.backward();
  for (const int p : {0, 1}) {
    SCOPED_TRACE(p == 0 ? "queries" : "keys");
    const std::int64_t width = p == 0 ? whole.queries : whole.keys;
    auto gain = whole.gain[p];
    for (double& g : gain) g += offset;
    const auto forward = reference::rms_norm(whole.x[p], gain, width_epsilon);
    const auto dx = reference::rms_norm_backward_input(whole.dy[p], whole.x[p], gain, forward);
    std::vector<double> y(whole.x[p].size()), found(y.size()), weight(gain.size());
    first.add_columns(first.x(), p, y, true);
    second.add_columns(second.x(), p, y, false);
    first.add_columns(first.dy(), p, found, true);
    second.add_columns(second.dy(), p, found, true);
    // As for RMSNorm: sums of `width` terms, and 8 roundings around them.
    const double rounding =
        static_cast<double>(width + 8) * static_cast<double>(std::numeric_limits<T>::epsilon());
    expect_close(y, forward.y, [&](std::size_t i) { return rounding * std::abs(forward.y[i]); });
    const auto row = [&](std::size_t i) { return i / static_cast<std::size_t>(width); };
    std::vector<double> bounds(static_cast<std::size_t>(whole.tokens));
    for (std::size_t t = 0; t < bounds.size(); ++t) {
      double largest = 0, spread = 0;
      for (std::size_t c = 0; c < gain.size(); ++c) {
        const std::size_t i = t * gain.size() + c;
        largest = std::max(largest, std::abs(gain[c] * whole.dy[p][i]));
        spread = std::max(spread, std::abs(whole.x[p][i]) * forward.inverse_rms[t]);
      }
      bounds[t] = 3 * rounding * forward.inverse_rms[t] * largest * (1 + spread * spread);
    }
    expect_close(found, dx, [&](std::size_t i) { return bounds[row(i)]; });
    std::vector<double> magnitudes(gain.size());
    for (std::size_t i = 0; i < whole.x[p].size(); ++i) {
      const double term = whole.dy[p][i] * whole.x[p][i] * forward.inverse_rms[row(i)];
      weight[i % gain.size()] += term;
      magnitudes[i % gain.size()] += std::abs(term);
    }
    std::vector<double> sums(gain.size());
    for (const auto& [rank, held] : {std::pair{&first, &a}, {&second, &b}}) {
      const auto values = rank->dgain[p].values();
      const std::int64_t begin = p == 0 ? held->query : held->key;
      for (std::size_t c = 0; c < values.size(); ++c)
        sums[static_cast<std::size_t>(begin) + c] += static_cast<double>(values[c]);
    }
    // Sums over the tokens of products with the error of inverse_rms.
    const double of_sum = rounding + static_cast<double>(whole.tokens + 8) *
                                         static_cast<double>(std::numeric_limits<T>::epsilon());
    expect_close(sums, weight, [&](std::size_t c) { return of_sum * magnitudes[c]; });
  }
}

TYPED_TEST(WidthNorms, PartsOfTwoRanksMatchTheReference) {
  for (const std::int64_t tokens : {1, 3, 70})
    for (const double offset : {0.0, 1.0}) {
      const Whole whole = Whole::make<TypeParam>(tokens, 60, 28);
      expect_two_ranks_match_the_reference<TypeParam>(whole, {0, 36, 0, 16}, {36, 24, 16, 12},
                                                      offset);
    }
}

/// Both ranks have the columns 12 to 19 of keys, with a part of their gradient.
TYPED_TEST(WidthNorms, CountColumnsOfTwoRanksOnce) {
  const Whole whole = Whole::make<TypeParam>(13, 60, 28);
  expect_two_ranks_match_the_reference<TypeParam>(whole, {0, 36, 0, 20, 0, 8}, {36, 24, 12, 16, 8},
                                                  0);
}

TYPED_TEST(WidthNorms, RanksWithoutColumnsTakePart) {
  const Whole whole = Whole::make<TypeParam>(5, 33, 7);
  expect_two_ranks_match_the_reference<TypeParam>(whole, {0, 33, 0, 7}, {33, 0, 7, 0}, 0);
}

}  // namespace
}  // namespace trireme::kernels
