// Attention by parts of queries and keys, merged, against attention of whole samples.
#include <trireme/kernels/attention_range.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/layout/token_places.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "kernels/attention_runs.hpp"

namespace trireme::kernels {
namespace {

using namespace attention_runs;
using layout::TokenPlaces;

/// Ranks of a ring, one after another, over host arrays [B, S, columns].
template <class T>
class Ring {
 public:
  using A = Accumulate<T>;

  Ring(const AttentionShape& shape, int ranks) : shape_(shape), ranks_(ranks) {}

  TokenPlaces places(int rank) const { return layout::token_places(shape_.sequence, ranks_, rank); }

  /// The rows of a rank's tokens, of some columns.
  template <class U>
  std::vector<U> of_rank(const std::vector<U>& all, std::int64_t columns, int rank,
                         std::int64_t first, std::int64_t count) const {
    std::vector<U> part;
    const TokenPlaces own = places(rank);
    for (std::int64_t row = 0; row < shape_.batch * own.held; ++row) {
      const auto from = all.begin() + own.row(row) * columns + first;
      part.insert(part.end(), from, from + count);
    }
    return part;
  }
  template <class U>
  void put(std::vector<U>& all, std::int64_t columns, int rank, std::int64_t first,
           std::int64_t count, const std::vector<U>& part) const {
    const TokenPlaces own = places(rank);
    for (std::int64_t row = 0; row < shape_.batch * own.held; ++row)
      std::copy_n(part.begin() + row * count, count, all.begin() + own.row(row) * columns + first);
  }

  /// Calls f(part, first) for the pairs of chunks of two ranks; a chunk's own keys come first.
  template <class F>
  void for_pairs(int queries_of, int keys_of, const F& f) const {
    const auto chunks = [](const TokenPlaces& p) {
      return std::array{AttentionTokens{p.head.count, 0, p.held, p.head.first},
                        AttentionTokens{p.tail.count, p.head.count, p.held, p.tail.first}};
    };
    for (const bool same : {true, false})
      for (const AttentionTokens& queries : chunks(places(queries_of)))
        for (const AttentionTokens& keys : chunks(places(keys_of))) {
          if (same != (queries.position == keys.position && queries_of == keys_of)) continue;
          if (shape_.causal && queries.position < keys.position) continue;
          f(AttentionRange(shape_, queries, keys, same), same);
        }
  }

  int ranks() const { return ranks_; }

 private:
  AttentionShape shape_;
  int ranks_;
};

const AttentionShape part_shapes[] = {{1, 7, 2, 2, 8},
                                      {2, 200, 2, 1, 16},
                                      {1, 321, 4, 2, 24},
                                      {2, 150, 2, 2, 13, false},
                                      {1, 330, 3, 2, 16, true, 0.0, 2, 1, 70},
                                      {1, 300, 1, 1, 8, true, 0.5, 0, 0, 5}};

/// Each causal shape also with documents, whose ends are within chunks and at their edges.
std::vector<std::pair<AttentionShape, bool>> part_cases() {
  std::vector<std::pair<AttentionShape, bool>> all;
  for (const AttentionShape& s : part_shapes)
    for (const bool documents : {false, true})
      if (s.causal || !documents) all.emplace_back(s, documents);
  return all;
}

/// All numbers of a type, compared with attention of whole samples in double.
template <class T>
void expect_parts_are_the_whole(double unit) {
  using A = Accumulate<T>;
  const Handle handle;
  for (const auto& [given, documents] : part_cases())
    for (const int ranks : {2, 3})
      for (const AttentionDropout& dropout : {AttentionDropout{}, some_dropout()}) {
        AttentionShape s = given;
        if (s.group == 0) s.group = s.heads / s.key_value_heads;
        if (s.scale == 0.0) s.scale = 1 / std::sqrt(static_cast<double>(s.head_size));
        SCOPED_TRACE(text(describe(s), ", ", ranks, " ranks, dropout ", dropout.rate,
                          documents ? ", documents" : ""));
        const auto positions = positions_of(s, {1, 70, 3, 110, 20});
        const DeviceArray<std::int32_t> all_positions(positions);
        if (documents) s.positions = all_positions.flat();
        const Ring<T> ring(s, ranks);
        const std::int64_t Q = s.heads * s.head_size, KV = 2 * s.key_value_heads * s.head_size;
        const auto qkv = uniform<T>(s.tokens() * (Q + KV), 1);
        const auto grad = uniform<T>(s.tokens() * Q, 2);
        const std::vector<double> exact_qkv(qkv.begin(), qkv.end());
        const std::vector<double> exact_grad(grad.begin(), grad.end());
        const auto expected = run_forward<double>(exact_qkv, s, dropout).o;
        const auto gradient = run_backward<double>(exact_qkv, exact_grad, s, dropout);
        std::vector<T> o(at(s.tokens() * Q)), dqueries(at(s.tokens() * Q));
        std::vector<A> dkeys(at(s.tokens() * KV));
        for (int rank = 0; rank < ranks; ++rank) {
          const std::int64_t held = ring.places(rank).held, rows = s.batch * held;
          AttentionShape own = s;
          own.sequence = held;
          const DeviceArray<std::int32_t> own_positions(ring.of_rank(positions, 1, rank, 0, 1));
          const DeviceArray<T> q(ring.of_rank(qkv, Q + KV, rank, 0, Q + KV));
          const DeviceArray<T> g(ring.of_rank(grad, Q, rank, 0, Q));
          const DeviceArray<T> result(rows * Q, T(NAN)), dqkv(rows * (Q + KV), T(NAN));
          const DeviceArray<A> wide(is_narrow<T> ? rows * Q : 0, NAN), delta(rows * s.heads, NAN);
          const DeviceArray<A> lse(rows * s.heads, NAN);
          const auto keys_of = [&](int other) {
            return DeviceArray<T>(ring.of_rank(qkv, Q + KV, other, Q, KV));
          };
          for (int step = 0; step < ranks; ++step) {
            const int other = (rank + ranks - step) % ranks;
            const auto keys = keys_of(other);
            ring.for_pairs(rank, other, [&](AttentionRange part, bool first) {
              if (documents) part.positions = own_positions.flat();
              attention_part_forward<T>(handle, result.matrix(rows, Q), wide.flat(),
                                        lse.cube(s.batch, s.heads, held), q.matrix(rows, Q + KV),
                                        keys.matrix(s.batch * part.keys.rows, KV), part, first,
                                        dropout);
            });
          }
          if constexpr (is_narrow<T>) convert<T, A>(handle, result.flat(), wide.flat());
          attention_delta<T>(handle, delta.flat(), g.matrix(rows, Q), result.matrix(rows, Q), own);
          for (int step = 0; step < ranks; ++step) {
            const int other = (rank + ranks - step) % ranks;
            const auto keys = keys_of(other);
            const std::int64_t key_rows = s.batch * ring.places(other).held;
            const DeviceArray<A> dkey(ring.of_rank(dkeys, KV, other, 0, KV));
            ring.for_pairs(rank, other, [&](AttentionRange part, bool first) {
              if (documents) part.positions = own_positions.flat();
              attention_part_backward<T>(
                  handle, dqkv.matrix(rows, Q + KV), wide.flat(), dkey.matrix(key_rows, KV),
                  g.matrix(rows, Q), q.matrix(rows, Q + KV), keys.matrix(key_rows, KV),
                  lse.cube(s.batch, s.heads, held), delta.flat(), part, first, dropout);
            });
            fence(handle, "test");
            ring.put(dkeys, KV, other, 0, KV, dkey.values());
          }
          if constexpr (is_narrow<T>)
            place_columns<T>(handle, dqkv.matrix(rows, Q + KV), wide.matrix(rows, Q), 0);
          fence(handle, "test");
          ring.put(o, Q, rank, 0, Q, result.values());
          const auto all = dqkv.values();
          std::vector<T> of_queries;
          for (std::int64_t row = 0; row < rows; ++row)
            of_queries.insert(of_queries.end(), all.begin() + row * (Q + KV),
                              all.begin() + row * (Q + KV) + Q);
          ring.put(dqueries, Q, rank, 0, Q, of_queries);
        }
        // As for whole samples; a merge adds 8 roundings, and numbers are rounded when stored.
        const double keeps = 1 - dropout.rate;
        const double delta_p = relative_error(s, std::numeric_limits<A>::epsilon() / 2) +
                               8.0 * ranks * std::numeric_limits<A>::epsilon();
        double off = 0;
        for (std::size_t i = 0; i < o.size(); ++i) {
          const double difference = std::abs(static_cast<double>(o[i]) - expected[i]);
          ASSERT_LE(difference, (2 * delta_p + 2 * unit) / keeps) << "o " << i;
          off = std::max(off, difference);
        }
        // ds = scale p (dp − delta): p is off by a factor 1 + δ, |dp − delta| ≤ 2 K / (1 − rate),
        // and delta, of K products with |grad| ≤ 1, by K times the error of o. The sum of p over
        // the keys of a query is 1, that over the queries of a key the gradient of its values for a
        // gradient of ones; |q|, |k|, |v| ≤ 1.
        const auto K = static_cast<double>(s.head_size);
        const double of_scores = s.scale * (K * off + 2 * delta_p * 2 * K / keeps);
        const auto sums = run_backward<double>(
            exact_qkv, std::vector<double>(exact_grad.size(), 1.0), s, dropout);
        double of_key = 1;
        for (std::int64_t t = 0; t < s.tokens(); ++t)
          for (std::int64_t d = Q + KV / 2; d < Q + KV; ++d)
            of_key = std::max(of_key, sums[at(t * (Q + KV) + d)]);
        const double error = 2 * of_scores;
        const double key_error = (of_key + 1) * (of_scores + 2 * delta_p / keeps);
        for (std::int64_t t = 0; t < s.tokens(); ++t) {
          for (std::int64_t d = 0; d < Q; ++d)
            ASSERT_NEAR(static_cast<double>(dqueries[at(t * Q + d)]),
                        gradient[at(t * (Q + KV) + d)],
                        error + 2 * unit * std::abs(gradient[at(t * (Q + KV) + d)]))
                << "dq " << t << " " << d;
          for (std::int64_t d = 0; d < KV; ++d)
            ASSERT_NEAR(static_cast<double>(dkeys[at(t * KV + d)]),
                        gradient[at(t * (Q + KV) + Q + d)], key_error)
                << "dkv " << t << " " << d;
        }
      }
}

TEST(AttentionRange, MergedPartsMatchTheWholeInDouble) {
  expect_parts_are_the_whole<double>(std::numeric_limits<double>::epsilon() / 2);
}
TEST(AttentionRange, MergedPartsMatchTheWholeInFloat) {
  expect_parts_are_the_whole<float>(std::numeric_limits<float>::epsilon() / 2);
}
TEST(AttentionRange, MergedPartsMatchTheWholeInTwoBytes) {
  expect_parts_are_the_whole<Bf16>(1.0 / 256);
  expect_parts_are_the_whole<Fp16>(1.0 / 2048);
}

}  // namespace
}  // namespace trireme::kernels
