/// Embedding, whole and of a vocabulary or a sequence in parts: what ranks compute, each with its
/// part.

#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/embedding.hpp>
#include <trireme/kernels/ordered_rows.hpp>

#include <kernels/cases.hpp>
#include <kernels/tokens.hpp>
#include <reference/embedding.hpp>
#include <reference/parts.hpp>
#include <support/device_array.hpp>
#include <support/numbers.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace trireme::kernels {
namespace {

using reference::uneven_parts;
using testing::at;
using testing::DeviceArray;
using testing::expect_close;
using testing::random_numbers;
using testing::random_tokens;
using testing::rows_of;

constexpr std::int64_t table_splits[] = {2, 3, 5};

template <class T>
class Embedding : public ::testing::Test {
 protected:
  static constexpr double eps = std::numeric_limits<T>::epsilon();
};
TYPED_TEST_SUITE(Embedding, WideTypes);

/// The embedding from `parts` parts of the table, and then of the rows.
template <class T>
std::vector<T> embedding_in_parts(const std::vector<std::int32_t>& tokens,
                                  const std::vector<double>& table,
                                  const std::vector<double>& positions, std::int64_t hidden,
                                  std::int64_t parts) {
  const auto t = static_cast<std::int64_t>(tokens.size());
  const auto s = static_cast<std::int64_t>(positions.size()) / hidden;
  const DeviceArray<std::int32_t> d_tokens(tokens);
  const DeviceArray<T> d_table(table), d_positions(positions), sum(t * hidden), x(t * hidden);
  const auto ids = uneven_parts(static_cast<std::int64_t>(table.size()) / hidden, parts);
  for (std::size_t p = 0; p + 1 < ids.size(); ++p) {
    fill<T>(Exec{}, x.flat(), std::numeric_limits<double>::quiet_NaN());
    embedding_lookup<T>(Exec{}, x.matrix(t, hidden), d_tokens.flat(),
                        rows_of(d_table, hidden, ids[p], ids[p + 1]), ids[p]);
    accumulate<T>(Exec{}, sum.flat(), x.flat());
  }
  const auto rows = uneven_parts(t, parts);
  for (std::size_t p = 0; p + 1 < rows.size(); ++p)
    add_positions<T>(Exec{}, rows_of(sum, hidden, rows[p], rows[p + 1]),
                     d_positions.matrix(s, hidden), s, rows[p]);
  return sum.values();
}

/// Every row comes from one part and is exact there; zeros add nothing. Positions then round once.
TYPED_TEST(Embedding, LookUpsAndPositionsMatchReference) {
  using T = TypeParam;
  for (const std::int64_t t : small_sizes)
    for (const std::int64_t d : small_sizes)
      for (const std::int64_t v : small_sizes)
        for (const std::int64_t s : {1, 7, 13, 128}) {
          const auto tokens = random_tokens(t, v, 1);
          const auto table = random_numbers<T>(v * d, 2);
          const auto positions = random_numbers<T>(s * d, 3);
          const auto whole = embedding_in_parts<T>(tokens, table, positions, d, 1);
          const auto expected = reference::embedding(tokens, table, positions, at(d));
          expect_close(whole, expected,
                       [&](std::size_t i) { return TestFixture::eps * std::abs(expected[i]); });
          for (const std::int64_t parts : table_splits)
            ASSERT_EQ(embedding_in_parts<T>(tokens, table, positions, d, parts), whole)
                << t << ' ' << d << ' ' << v << ' ' << s << ' ' << parts;
        }
}

/// The look-up is linear, so its backward pass is the transpose, added to the previous content: row
/// v of the gradient is the sum over the tokens v in their order, whichever part holds it.
TYPED_TEST(Embedding, LookUpBackwardMatchesReferenceForAnyParts) {
  using T = TypeParam;
  using Acc = Accumulate<T>;
  for (const std::int64_t t : small_sizes)
    for (const std::int64_t d : small_sizes)
      for (const std::int64_t v : small_sizes) {
        const auto tokens = random_tokens(t, v, 1);
        const auto dx = random_numbers<T>(t * d, 4);
        const auto before = random_numbers<Acc>(v * d, 5);
        const DeviceArray<std::int32_t> d_tokens(tokens);
        const DeviceArray<T> d_dx(dx);
        const DeviceArray<Acc> whole(before);
        embedding_lookup_backward<T>(Exec{}, whole.matrix(v, d), d_dx.matrix(t, d), d_tokens.flat(),
                                     0);
        auto expected = reference::embedding_transposed(tokens, dx, at(v), at(d));
        std::vector<double> size = before;
        for (std::size_t i = 0; i < size.size(); ++i) {
          expected[i] += before[i];
          size[i] = std::abs(before[i]);
        }
        for (std::size_t i = 0; i < dx.size(); ++i)
          size[at(tokens[i / at(d)]) * at(d) + i % at(d)] += std::abs(dx[i]);
        const double roundings = static_cast<double>(t + 1) * TestFixture::eps;
        expect_close(whole.values(), expected, [&](std::size_t i) { return roundings * size[i]; });
        for (const std::int64_t parts : table_splits) {
          const DeviceArray<Acc> split(before);
          const auto begins = uneven_parts(v, parts);
          for (std::size_t p = 0; p + 1 < begins.size(); ++p)
            embedding_lookup_backward<T>(Exec{}, rows_of(split, d, begins[p], begins[p + 1]),
                                         d_dx.matrix(t, d), d_tokens.flat(), begins[p]);
          ASSERT_EQ(split.values(), whole.values()) << t << ' ' << d << ' ' << v << ' ' << parts;
        }
      }
}

/// Parts in their order add the same rows in the same order as a single call.
TYPED_TEST(Embedding, PositionsBackwardMatchesReferenceForAnyParts) {
  using T = TypeParam;
  using Acc = Accumulate<T>;
  for (const std::int64_t rows : small_sizes)
    for (const std::int64_t d : small_sizes)
      for (const std::int64_t s : {1, 5, 13, 128, 200})
        for (const std::int64_t first : {0, 3, 201}) {
          const auto dx = random_numbers<T>(rows * d, 4);
          const auto before = random_numbers<Acc>(s * d, 6);
          const DeviceArray<T> d_dx(dx);
          const DeviceArray<Acc> whole(before);
          positions_backward<T>(Exec{}, whole.matrix(s, d), d_dx.matrix(rows, d), s, first);
          std::vector<double> expected = before, size = before;
          for (double& value : size) value = std::abs(value);
          for (std::size_t i = 0; i < dx.size(); ++i) {
            const std::size_t row = (at(first) + i / at(d)) % at(s);
            expected[row * at(d) + i % at(d)] += dx[i];
            size[row * at(d) + i % at(d)] += std::abs(dx[i]);
          }
          const double roundings = static_cast<double>(rows + 1) * TestFixture::eps;
          expect_close(whole.values(), expected,
                       [&](std::size_t i) { return roundings * size[i]; });
          for (const std::int64_t parts : table_splits) {
            const DeviceArray<Acc> split(before);
            const auto begins = uneven_parts(rows, parts);
            for (std::size_t p = 0; p + 1 < begins.size(); ++p)
              positions_backward<T>(Exec{}, split.matrix(s, d),
                                    rows_of(d_dx, d, begins[p], begins[p + 1]), s,
                                    first + begins[p]);
            ASSERT_EQ(split.values(), whole.values())
                << rows << ' ' << d << ' ' << s << ' ' << first;
          }
        }
}

/// The functors that devices run, on teams of one lane. Their sums have the order of t too.
template <class Functor>
void run_on_teams(const Functor& f, std::int64_t scratch) {
  Kokkos::parallel_for(
      "test",
      DevicePolicy(Exec{}, static_cast<int>(f.teams()), exec_on_host ? 1 : row_threads(Exec{}))
          .set_scratch_size(0, Kokkos::PerTeam(static_cast<int>(scratch))),
      f);
}

template <class T>
class OrderedRows : public ::testing::Test {};
TYPED_TEST_SUITE(OrderedRows, AllTypes);

/// 3000 equal tokens fill the list of occurrences several times; 520 columns are two blocks; 13 and
/// 521 columns are not a whole number of packs.
TYPED_TEST(OrderedRows, DevicesAndHostsGiveTheSameBits) {
  using T = TypeParam;
  using Acc = Accumulate<T>;
  for (const std::int64_t t : {1, 13, 3000})
    for (const std::int64_t d : {13, 16, 520, 521})
      for (const std::int64_t v : {1, 13}) {
        const auto tokens = random_tokens(t, v, 1);
        const DeviceArray<std::int32_t> ids(tokens);
        const DeviceArray<T> dx(random_numbers<T>(t * d, 2));
        const auto before = random_numbers<Acc>(v * d, 3);
        // A part of the table that begins at id 1: id 0 is elsewhere.
        for (const std::int64_t first : {0, 1}) {
          if (first >= v) continue;
          const DeviceArray<Acc> expected(before), found(before);
          const auto part = [&](const DeviceArray<Acc>& of) {
            return View2<Acc>(of.data() + first * d, at(v - first), at(d));
          };
          embedding_lookup_backward<T>(Exec{}, part(expected), dx.matrix(t, d), ids.flat(), first);
          run_on_teams(SumOccurrences<T>{part(found), dx.matrix(t, d), ids.flat(), first},
                       SumOccurrences<T>::scratch_bytes);
          ASSERT_EQ(found.values(), expected.values()) << t << ' ' << d << ' ' << v;
        }
        const std::int64_t s = 7;
        const DeviceArray<Acc> expected(s * d), found(s * d);
        positions_backward<T>(Exec{}, expected.matrix(s, d), dx.matrix(t, d), s, 5);
        run_on_teams(SumPositions<T>{found.matrix(s, d), dx.matrix(t, d), s, 5}, 0);
        ASSERT_EQ(found.values(), expected.values()) << t << ' ' << d;
      }
}

}  // namespace
}  // namespace trireme::kernels
