#include <trireme/base/text.hpp>
#include <trireme/kernels/attention.hpp>
#include <trireme/tensor/fence.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/attention_runs.hpp"
#include "kernels/cases.hpp"
#include "support/device_array.hpp"

/// A rank may hold parts of groups of query heads: it computes its part of the whole.
namespace trireme::kernels {
namespace {

using attention_runs::take_columns;
using testing::at;
using testing::DeviceArray;
using testing::uniform;

template <class T>
struct GroupPasses {
  std::vector<T> o;     // [T, H K]
  std::vector<T> dqkv;  // as qkv
};

template <class T>
GroupPasses<T> run_part(const std::vector<T>& qkv, const std::vector<T>& grad,
                        const AttentionShape& s, std::int64_t first_head) {
  const AttentionDropout dropout{0.3, {7, Purpose::attention_dropout, 3, 5}, 11, first_head, 9};
  const Handle handle;
  const std::int64_t columns = s.heads * s.head_size;
  const DeviceArray<T> x(qkv), g(grad), o(s.tokens() * columns), lse(s.tokens() * s.heads);
  const DeviceArray<T> dx(s.tokens() * s.qkv_columns()),
      work(attention_workspace_elements<T>(handle.choice(), s));
  const auto lse_view = lse.cube(s.batch, s.heads, s.sequence);
  attention_forward<T>(handle, o.matrix(s.tokens(), columns), lse_view,
                       x.matrix(s.tokens(), s.qkv_columns()), s, dropout);
  attention_backward<T>(handle, dx.matrix(s.tokens(), s.qkv_columns()),
                        g.matrix(s.tokens(), columns), o.matrix(s.tokens(), columns),
                        x.matrix(s.tokens(), s.qkv_columns()), lse_view, work.flat(), s, dropout);
  fence(handle, "test");
  return {o.values(), dx.values()};
}

/// The query heads [begin, end), with the keys and values that they use.
struct Part {
  AttentionShape shape;
  std::int64_t first;                                           ///< first head of keys and values
  std::pair<std::int64_t, std::int64_t> queries, keys, values;  ///< columns of the whole

  Part(const AttentionShape& whole, std::int64_t begin, std::int64_t end) : shape(whole) {
    const std::int64_t K = whole.head_size;
    shape.group = whole.heads / whole.key_value_heads;
    shape.heads = end - begin;
    shape.heads_before = begin % shape.group;
    first = begin / shape.group;
    shape.key_value_heads = begin == end ? 0 : (end - 1) / shape.group + 1 - first;
    const std::int64_t key = (whole.heads + first) * K;
    const std::int64_t value = key + whole.key_value_heads * K;
    queries = {begin * K, end * K};
    keys = {key, key + shape.key_value_heads * K};
    values = {value, value + shape.key_value_heads * K};
  }
};

template <class T>
class AttentionGroups : public ::testing::Test {};
TYPED_TEST_SUITE(AttentionGroups, WideTypes);

/// Outputs and the gradients of queries have the same bits. The gradients of keys and values are
/// sums over the parts that hold them, in a different order than within one part.
TYPED_TEST(AttentionGroups, SplittingAGroupKeepsTheResult) {
  using T = TypeParam;
  for (const AttentionShape& whole :
       {AttentionShape{2, 70, 6, 2, 13}, {1, 67, 6, 1, 16}, {1, 40, 6, 3, 8}})
    for (const std::vector<std::int64_t>& ends :
         {std::vector<std::int64_t>{0, 2, 4, 5, 6}, {0, 3, 6}, {0, 1, 1, 6}}) {
      const std::int64_t columns = whole.qkv_columns();
      const std::int64_t query_columns = whole.heads * whole.head_size;
      const auto qkv = uniform<T>(whole.tokens() * columns, 1);
      const auto grad = uniform<T>(whole.tokens() * query_columns, 2);
      const GroupPasses<T> expected = run_part(qkv, grad, whole, 2);
      std::vector<double> sums(at(whole.tokens() * columns), 0.0);
      for (std::size_t p = 0; p + 1 < ends.size(); ++p) {
        SCOPED_TRACE(text(whole.heads, " heads over ", whole.key_value_heads, ", those from ",
                          ends[p], " to ", ends[p + 1]));
        const Part part(whole, ends[p], ends[p + 1]);
        const auto found =
            run_part(take_columns(qkv, columns, {part.queries, part.keys, part.values}),
                     take_columns(grad, query_columns, {part.queries}), part.shape, 2 + ends[p]);
        EXPECT_EQ(found.o, take_columns(expected.o, query_columns, {part.queries}));
        const std::int64_t mine = part.shape.qkv_columns();
        EXPECT_EQ(take_columns(found.dqkv, mine, {{0, part.shape.heads * whole.head_size}}),
                  take_columns(expected.dqkv, columns, {part.queries}));
        for (std::int64_t t = 0; t < whole.tokens(); ++t) {
          auto from = found.dqkv.begin() + t * mine + part.shape.heads * whole.head_size;
          for (const auto& [begin, end] : {part.keys, part.values})
            for (std::int64_t c = begin; c < end; ++c)
              sums[at(t * columns + c)] += static_cast<double>(*from++);
        }
      }
      // Sums of n = S·G terms of either sign in a different order differ by √n u Σ|x| in the mean
      // (Higham 2002, section 4.6), where Σ|x| is about √n |Σx|.
      double norm = 0.0, error = 0.0;
      for (std::int64_t i = 0; i < whole.tokens() * columns; ++i) {
        if (i % columns < query_columns) continue;
        const auto value = static_cast<double>(expected.dqkv[at(i)]);
        norm += value * value;
        error += (sums[at(i)] - value) * (sums[at(i)] - value);
      }
      const double u = std::numeric_limits<T>::epsilon() / 2;
      const auto n = static_cast<double>(whole.sequence * whole.heads / whole.key_value_heads);
      EXPECT_GT(norm, 1.0);
      EXPECT_LE(std::sqrt(error), n * u * std::sqrt(norm));
    }
}

}  // namespace
}  // namespace trireme::kernels
