/// A rank can hold an empty part of an array. Rows or columns of extent 0, at a null pointer, are
/// legal everywhere: results stay unchanged or become an empty sum. (Attention without heads:
/// test_attention.cpp; an empty part of a vocabulary: test_cross_entropy.cpp.)

#include <trireme/kernels/attention_sinks.hpp>
#include <trireme/kernels/cache.hpp>
#include <trireme/kernels/cross_entropy.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/embedding.hpp>
#include <trireme/kernels/latent_heads.hpp>
#include <trireme/kernels/matmul.hpp>
#include <trireme/kernels/norm.hpp>
#include <trireme/kernels/outer_step.hpp>
#include <trireme/kernels/random.hpp>
#include <trireme/kernels/rotary.hpp>
#include <trireme/kernels/update_rules.hpp>
#include <trireme/tensor/fence.hpp>

#include <kernels/cases.hpp>
#include <support/device_array.hpp>

#include <gtest/gtest.h>

namespace trireme::kernels {
namespace {

using testing::DeviceArray;

constexpr std::int64_t thirteen = 13;
const std::vector<double> sevens(thirteen, 7.0);

template <class T>
View2<T> nothing(std::int64_t rows, std::int64_t columns) {
  return View2<T>(nullptr, static_cast<std::size_t>(rows), static_cast<std::size_t>(columns));
}
template <class T>
View1<T> nothing() {
  return View1<T>(nullptr, 0);
}

/// Sevens, to check that they stay unchanged.
template <class T>
DeviceArray<T> kept() {
  return DeviceArray<T>(sevens);
}
template <class T>
void expect_kept(const DeviceArray<T>& x) {
  const auto values = x.values();
  EXPECT_EQ(std::vector<double>(values.begin(), values.end()), sevens);
}

template <class T>
class Empty : public ::testing::Test {};
TYPED_TEST_SUITE(Empty, WideTypes);

TYPED_TEST(Empty, NormsAcceptNoRows) {
  using T = TypeParam;
  using Acc = Accumulate<T>;
  const Handle handle;
  const DeviceArray<T> gain = kept<T>(), bias = kept<T>();
  const DeviceArray<Acc> dgain = kept<Acc>(), dbias = kept<Acc>();
  const auto x = nothing<T>(0, thirteen);
  layer_norm_forward<T>(handle, x, nothing<Acc>(), nothing<Acc>(), x, gain.flat(), bias.flat(),
                        1e-5);
  layer_norm_backward_input<T>(handle, x, x, x, nothing<Acc>(), nothing<Acc>(), gain.flat(), true);
  layer_norm_backward_weight<T>(handle, dgain.flat(), dbias.flat(), x, x, nothing<Acc>(),
                                nothing<Acc>());
  rms_norm_forward<T>(handle, x, nothing<Acc>(), x, gain.flat(), 0, 1e-5);
  rms_norm_backward_input<T>(handle, x, x, x, nothing<Acc>(), gain.flat(), 0, true);
  rms_norm_backward_weight<T>(handle, dgain.flat(), x, x, nothing<Acc>());
  expect_kept(dgain);
  expect_kept(dbias);
}

TYPED_TEST(Empty, ElementwiseKernelsAcceptNoElements) {
  using T = TypeParam;
  const Handle handle;
  const RandomKey key{1, Purpose::dropout, 2, 3};
  for (const auto& [rows, columns] : {std::pair{0, 13}, {13, 0}, {0, 0}}) {
    const auto x = nothing<T>(rows, columns);
    gelu_forward<T>(handle, x, x);
    gelu_backward<T>(handle, x, x, x);
    tanh_forward<T>(handle, x, x);
    tanh_backward<T>(handle, x, x, x);
    swiglu_forward<T>(handle, x, nothing<T>(rows, 2 * columns));
    swiglu_backward<T>(handle, nothing<T>(rows, 2 * columns), x, nothing<T>(rows, 2 * columns));
    clamped_swiglu_forward<T>(handle, x, nothing<T>(rows, 2 * columns), 7);
    clamped_swiglu_backward<T>(handle, nothing<T>(rows, 2 * columns), x,
                               nothing<T>(rows, 2 * columns), 7);
    rotary_forward<T>(handle, x, Rotary{columns / 2, 2});
    for (const double rate : {0.0, 0.5}) {
      const Dropout dropout{rate, key, 3};
      residual_dropout_forward<T>(handle, x, x, x, dropout);
      dropout_forward<T>(handle, x, x, dropout);
      dropout_backward<T>(handle, x, x, dropout);
    }
    normal_fill<T>(handle, View3<T>(nullptr, 2, x.extent(0), x.extent(1)), key, 1.0, 20, 3);
    uniform_fill<T>(handle, View3<T>(nullptr, 2, x.extent(0), x.extent(1)), key, 1.0, 20, 3);
  }
  accumulate<T>(handle, nothing<T>(), nothing<T>());
  scale<T>(handle, nothing<T>(), 2.0);
  fill<T>(handle, nothing<T>(), 2.0);
  copy<T>(handle, nothing<T>(), nothing<T>());
  normal_fill<T>(handle, nothing<T>(), key, 1.0, 5);
  const DeviceArray<std::int32_t> tokens(3);
  cache_append<T>(handle, nothing<T>(3, 0), View3<T>(nullptr, 3, 5, 0), View3<T>(nullptr, 3, 5, 0),
                  nothing<T>(3, 0), {tokens.flat(), tokens.flat()});
  fence(handle, "test");
}

TYPED_TEST(Empty, HeadsOfAttentionAcceptNoRowsAndNoHeads) {
  using T = TypeParam;
  using Acc = Accumulate<T>;
  const Handle handle;
  const DeviceArray<T> sinks(3);
  const DeviceArray<Acc> dsinks(3, Acc(2));
  for (const auto& size : {std::pair<std::int64_t, std::int64_t>{0, 3}, {13, 0}, {0, 0}}) {
    const std::int64_t rows = size.first, heads = size.second;
    const auto of_heads = [&](std::int64_t columns) { return nothing<T>(rows, heads * columns); };
    const DeviceArray<T> k(2 * rows, T(3.0F));
    const LatentHeads n{heads, 4, 2, 3};
    join_heads<T>(handle, of_heads(12), of_heads(4), of_heads(5), k.matrix(rows, 2), n);
    join_heads_backward<T>(handle, of_heads(4), of_heads(5), k.matrix(rows, 2), of_heads(12), n);
    EXPECT_EQ(k.values(), std::vector<T>(static_cast<std::size_t>(2 * rows), T(0.0F)));
    take_values<T>(handle, of_heads(3), of_heads(4), n);
    take_values_backward<T>(handle, of_heads(4), of_heads(3), n);
    const View3<Acc> sums(nullptr, 1, static_cast<std::size_t>(heads),
                          static_cast<std::size_t>(rows));
    attention_sinks_forward<T>(handle, of_heads(4), sums, part(sinks.flat(), 0, heads));
    attention_sinks_backward<T>(handle, part(dsinks.flat(), 0, heads), of_heads(4), of_heads(4),
                                sums, part(sinks.flat(), 0, heads), nothing<Acc>(rows, heads));
  }
  EXPECT_EQ(dsinks.values(), std::vector<Acc>(3, Acc(2)));
}

TYPED_TEST(Empty, EmbeddingsAcceptNoTokensAndNoTable) {
  using T = TypeParam;
  using Acc = Accumulate<T>;
  const Handle handle;
  const DeviceArray<T> x = kept<T>();
  const DeviceArray<Acc> dx = kept<Acc>();
  const DeviceArray<std::int32_t> tokens(thirteen, 4);
  // No tokens.
  embedding_lookup<T>(handle, nothing<T>(0, 1), nothing<std::int32_t>(), x.matrix(thirteen, 1), 0);
  add_positions<T>(handle, nothing<T>(0, 1), x.matrix(thirteen, 1), thirteen, 5);
  embedding_lookup_backward<T>(handle, dx.matrix(thirteen, 1), nothing<T>(0, 1),
                               nothing<std::int32_t>(), 0);
  positions_backward<T>(handle, dx.matrix(thirteen, 1), nothing<T>(0, 1), thirteen, 5);
  add_segments<T>(handle, nothing<T>(0, 1), x.matrix(2, 1), tokens.flat(), 5);
  segments_backward<T>(handle, dx.matrix(2, 1), nothing<T>(0, 1), tokens.flat(), 5);
  pick_rows<T>(handle, nothing<T>(0, 1), x.matrix(thirteen, 1), nothing<std::int32_t>(), 0);
  place_rows<T>(handle, x.matrix(thirteen, 1), nothing<T>(0, 1), nothing<std::int32_t>(), 0);
  expect_kept(x);
  expect_kept(dx);
  // No table: every row is in another part.
  embedding_lookup_backward<T>(handle, nothing<Acc>(0, 1), x.matrix(thirteen, 1), tokens.flat(), 4);
  embedding_lookup<T>(handle, x.matrix(thirteen, 1), tokens.flat(), nothing<T>(0, 1), 4);
  EXPECT_EQ(x.values(), std::vector<T>(thirteen, T(0)));
  // No columns.
  embedding_lookup<T>(handle, nothing<T>(thirteen, 0), tokens.flat(), nothing<T>(5, 0), 0);
  embedding_lookup_backward<T>(handle, nothing<Acc>(5, 0), nothing<T>(thirteen, 0), tokens.flat(),
                               0);
  add_positions<T>(handle, nothing<T>(thirteen, 0), nothing<T>(3, 0), 3, 0);
  positions_backward<T>(handle, nothing<Acc>(3, 0), nothing<T>(thirteen, 0), 3, 0);
  fence(handle, "test");
}

TYPED_TEST(Empty, CrossEntropyAcceptsNoRows) {
  using T = TypeParam;
  const Handle handle;
  for (const std::int64_t columns : {0, 13}) {
    cross_entropy_statistics<T>(handle, nothing<double>(0, 3), nothing<T>(0, columns),
                                nothing<std::int32_t>(), 0);
    cross_entropy_merge(handle, nothing<double>(), nothing<double>(0, 3),
                        View3<double>(nullptr, 2, 0, 3));
    cross_entropy_gradient<T>(handle, nothing<T>(0, columns), nothing<T>(0, columns),
                              nothing<double>(0, 3), nothing<std::int32_t>(), 0, 1.0);
  }
  fence(handle, "test");
}

TYPED_TEST(Empty, UpdatesAcceptNoElements) {
  using T = TypeParam;
  const Handle handle;
  const DeviceArray<double> sum = kept<double>();
  const DeviceArray<std::int64_t> count(1);
  const DeviceArray<double> control(control_size);
  outer_difference<T, T>(handle, nothing<T>(), nothing<T>(), nothing<T>());
  mean_of_workers<T>(handle, nothing<T>(), nothing<T>(3, 0));
  outer_update<T, T>(handle, nothing<T>(), nothing<T>(), nothing<T>(), {0.7, 0.9, true});
  mix_with_outer<T>(handle, nothing<T>(), nothing<T>(), 0.5);
  swap_contents<T>(handle, nothing<T>(), nothing<T>());
  for (const std::string_view word : names<OptimizerKind>()) {
    const auto kind = parse<OptimizerKind>(word).value();
    const UpdateStep step{kind, {}, 0.1, control.flat(), {}, {}};
    for (const rules::Pass& pass : rules::rule_of(kind).passes({}))
      if (pass.kind == rules::PassKind::elements)
        element_pass<T>(handle, pass.number, UpdateArenas<T>{}, step, whole_update(0));
      else if (pass.kind == rules::PassKind::norms)
        find_factors(handle, pass.number, nothing<double>(), nothing<double>(), nothing<double>(),
                     nothing<double>(), 2, step);
  }
  squared_norm_blocks<T>(handle, nothing<double>(), nothing<T>());
  squared_norm_blocks<T>(handle, nothing<double>(), nothing<T>(), nothing<std::int64_t>(),
                         nothing<std::int64_t>());
  segment_sums(handle, nothing<double>(), nothing<double>(), nothing<std::int64_t>());
  count_non_finite<T>(handle, count.flat(), nothing<T>());
  EXPECT_EQ(count.values()[0], 0);
  const View1<double> seven(sum.data(), 1);
  sum_ordered(handle, seven, nothing<double>());
  expect_kept(sum);
  root_of_sum(handle, seven, nothing<double>());
  EXPECT_EQ(sum.values()[0], 0.0);
}

TYPED_TEST(Empty, ProductsAcceptEmptyMatrices) {
  using T = TypeParam;
  using Acc = Accumulate<T>;
  const auto of = [](const auto& x, std::int64_t rows, std::int64_t columns) {
    return x.matrix(rows, columns);
  };
  for (const MatmulBackend backend :
       {MatmulBackend::tiled, MatmulBackend::kokkos_kernels, MatmulBackend::onednn,
        MatmulBackend::cublaslt, MatmulBackend::widened}) {
    if (!matmul_backend_available(dtype_of<T>, backend)) continue;
    const Handle handle(KernelChoice().set_products(dtype_of<T>, backend));
    for (const Transpose ta : {Transpose::no, Transpose::yes})
      for (const Transpose tb : {Transpose::no, Transpose::yes}) {
        const auto left = [&](std::int64_t m, std::int64_t k, const DeviceArray<T>& x) {
          return ta == Transpose::yes ? of(x, k, m) : of(x, m, k);
        };
        const auto right = [&](std::int64_t k, std::int64_t m, const DeviceArray<T>& x) {
          return tb == Transpose::yes ? of(x, m, k) : of(x, k, m);
        };
        const DeviceArray<T> x = kept<T>(), none(0);
        matmul<T>(handle, of(none, 0, thirteen), left(0, 1, none), right(1, thirteen, x), ta, tb);
        matmul<T>(handle, of(none, thirteen, 0), left(thirteen, 1, x), right(1, 0, none), ta, tb);
        matmul<T>(handle, of(none, 0, 0), left(0, 0, none), right(0, 0, none), ta, tb);
        matmul<T>(handle, of(x, thirteen, 1), left(thirteen, 0, none), right(0, 1, none), ta, tb,
                  1.0, 1.0);
        expect_kept(x);
        matmul<T>(handle, of(x, 1, thirteen), left(1, 0, none), right(0, thirteen, none), ta, tb);
        EXPECT_EQ(x.values(), std::vector<T>(thirteen, T(0)));
      }
    // A linear layer without inputs gives its bias; without tokens its gradients stay unchanged;
    // without outputs its input's gradient is 0.
    const DeviceArray<T> x = kept<T>(), y(thirteen, T(3));
    const DeviceArray<Acc> dw = kept<Acc>(), dbias = kept<Acc>();
    linear_forward<T>(handle, y.matrix(1, thirteen), nothing<T>(1, 0), nothing<T>(thirteen, 0),
                      x.flat());
    expect_kept(y);
    linear_forward<T>(handle, y.matrix(1, thirteen), nothing<T>(1, 0), nothing<T>(thirteen, 0),
                      nothing<T>());
    EXPECT_EQ(y.values(), std::vector<T>(thirteen, T(0)));
    linear_forward<T>(handle, nothing<T>(1, 0), y.matrix(1, thirteen), nothing<T>(0, thirteen),
                      nothing<T>());
    linear_forward<T>(handle, nothing<T>(0, thirteen), nothing<T>(0, 1), y.matrix(thirteen, 1),
                      x.flat());
    linear_backward_weight<T>(handle, dw.matrix(thirteen, 1), dbias.flat(), nothing<T>(0, thirteen),
                              nothing<T>(0, 1));
    linear_backward_weight<T>(handle, nothing<Acc>(0, thirteen), nothing<Acc>(), nothing<T>(1, 0),
                              x.matrix(1, thirteen));
    expect_kept(dw);
    expect_kept(dbias);
    linear_backward_input<T>(handle, x.matrix(1, thirteen), nothing<T>(1, 0),
                             nothing<T>(0, thirteen));
    EXPECT_EQ(x.values(), std::vector<T>(thirteen, T(0)));
  }
}

/// Row-parallel products have their bias on one rank only; the weight's gradient does not depend on
/// it.
TYPED_TEST(Empty, LinearLayersAcceptNoBias) {
  using T = TypeParam;
  using Acc = Accumulate<T>;
  const DeviceArray<T> dy(testing::uniform<T>(5 * thirteen, 1)), x(testing::uniform<T>(5 * 7, 2));
  const DeviceArray<Acc> with(7 * thirteen), without(7 * thirteen), dbias(thirteen);
  linear_backward_weight<T>(Handle{}, with.matrix(thirteen, 7), dbias.flat(),
                            dy.matrix(5, thirteen), x.matrix(5, 7));
  linear_backward_weight<T>(Handle{}, without.matrix(thirteen, 7), View1<Acc>(),
                            dy.matrix(5, thirteen), x.matrix(5, 7));
  EXPECT_EQ(without.values(), with.values());
}

}  // namespace
}  // namespace trireme::kernels
