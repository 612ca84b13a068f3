// The portable gradient by teams of heads, as on hosts, and by teams of blocks, as on devices.
#include <trireme/kernels/portable_attention_backward.hpp>
#include <trireme/tensor/fence.hpp>

#include <gtest/gtest.h>

#include <limits>
#include <utility>
#include <vector>

#include "kernels/attention_runs.hpp"
#include "kernels/cases.hpp"

namespace trireme::kernels {
namespace {

using namespace attention_runs;

template <class T>
class AttentionTeams : public ::testing::Test {};
TYPED_TEST_SUITE(AttentionTeams, AllTypes);

template <class T>
struct Numbers {
  std::vector<T> dqkv;
  std::vector<Accumulate<T>> dtable;
  using Launch = void (*)(const Exec&, const AttentionBackward<T>&);

  /// logsumexp and delta may be any numbers: both ways take them as they are.
  Numbers(Launch launch, const AttentionShape& shape, const AttentionDropout& dropout) {
    using A = Accumulate<T>;
    const AttentionShape s = resolved(shape);
    const std::int64_t columns = s.heads * s.head_size;
    const A nan = std::numeric_limits<A>::quiet_NaN();  // all must be written
    const DeviceArray<T> qkv(uniform<T>(s.tokens() * s.qkv_columns(), 1)),
        grad(uniform<T>(s.tokens() * columns, 2)), gradient(s.tokens() * s.qkv_columns(), T(nan));
    const DeviceArray<A> logsumexp(uniform<A>(s.tokens() * s.heads, 3)),
        delta(uniform<A>(s.tokens() * s.heads, 4)), wide(s.tokens() * columns, nan);
    const std::int64_t biases = s.buckets.count * s.heads;
    const DeviceArray<T> table(uniform<T>(biases, 5));
    const DeviceArray<A> partial(relative_bias_workspace(s.sizes(), s.buckets.count));
    const auto values = qkv.matrix(s.tokens(), s.qkv_columns());
    const auto gradients = gradient.matrix(s.tokens(), s.qkv_columns());
    const Exec exec;
    AttentionBackward<T> backward{gradients,
                                  columns_from(gradients, columns),
                                  grad.matrix(s.tokens(), columns),
                                  values,
                                  columns_from(values, columns),
                                  logsumexp.cube(s.batch, s.heads, s.sequence),
                                  delta.flat(),
                                  s,
                                  AttentionMasks(dropout, s),
                                  HeadSizes<A>(s.head_size),
                                  wide.data()};
    backward.table = table.matrix(s.buckets.count, s.heads);
    if (s.has_biases()) backward.dtable = partial.data();
    launch(exec, backward);
    fence(exec, "test");
    dqkv = gradient.values();
    dtable = partial.values();
  }
};

TYPED_TEST(AttentionTeams, TeamsPerBlockHaveTheBitsOfTeamsPerHead) {
  using T = TypeParam;
  for (AttentionShape s : {AttentionShape{2, 70, 6, 2, 13}, {1, 300, 2, 1, 32}, {1, 129, 3, 3, 80}})
    for (const bool causal : {true, false})
      for (const std::int64_t window : {0, 1, 50, 65}) {
        s.buckets = window == 50 || !causal ? relative_buckets(8, 20, !causal) : RelativeBuckets{};
        for (const auto& [rate, documents] :
             {std::pair(0.0, false), {0.3, false}, {0.0, true}, {0.3, true}}) {
          if ((window > 0 || documents) && !causal) continue;
          s.causal = causal;
          s.window = window;
          const DeviceArray<std::int32_t> positions(positions_of(s, {1, 33, 2, 64, 100}));
          s.positions = documents ? positions.flat() : View1<const std::int32_t>();
          auto dropout = some_dropout();
          dropout.rate = rate;
          SCOPED_TRACE(text(describe(s), documents ? " documents" : ""));
          const Numbers<T> heads(attention_backward_by_heads<T>, s, dropout);
          const Numbers<T> blocks(attention_backward_by_blocks<T>, s, dropout);
          for (std::size_t i = 0; i < heads.dqkv.size(); ++i) {
            const auto value = static_cast<double>(blocks.dqkv[i]);
            ASSERT_EQ(value, static_cast<double>(heads.dqkv[i])) << i;  // and so it is not NaN
          }
          EXPECT_EQ(heads.dtable, blocks.dtable);
        }
      }
}

}  // namespace
}  // namespace trireme::kernels
