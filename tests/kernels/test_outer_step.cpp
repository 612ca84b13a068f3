#include <trireme/kernels/outer_step.hpp>

#include <trireme/base/check.hpp>

#include <support/device_array.hpp>

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace trireme::kernels {
namespace {

using testing::DeviceArray;

template <class T>
class Local : public ::testing::Test {};
struct Full32 {
  using Weight = float;
  using Message = float;
};
struct Full64 {
  using Weight = double;
  using Message = double;
};
struct Narrow {
  using Weight = float;
  using Message = Bf16;
};
using LocalTypes = ::testing::Types<Full32, Full64, Narrow>;
TYPED_TEST_SUITE(Local, LocalTypes);

constexpr std::int64_t vector_sizes[]{1, 13, 128, 5000};

/// One rounding of each result.
TYPED_TEST(Local, DifferencesAreRoundedOnce) {
  using M = typename TypeParam::Weight;
  using D = typename TypeParam::Message;
  for (const std::int64_t n : vector_sizes) {
    const auto outer = testing::uniform<M>(n, 1), local = testing::uniform<M>(n, 2);
    DeviceArray<M> a(outer), b(local);
    DeviceArray<D> d(n);
    outer_difference<M, D>(Exec(), d.flat(), a.flat(), b.flat());
    Exec().fence();
    const auto found = d.values();
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_EQ(static_cast<double>(found[i]),
                static_cast<double>(static_cast<D>(outer[i] - local[i])));
  }
}

TYPED_TEST(Local, MeansMatchDoublePrecision) {
  using D = typename TypeParam::Message;
  for (const std::int64_t n : vector_sizes)
    for (const std::int64_t workers : {1, 2, 5}) {
      DeviceArray<D> all(testing::uniform<D>(workers * n, 3));
      DeviceArray<D> mean(n);
      mean_of_workers<D>(Exec(), mean.flat(), all.matrix(workers, n));
      Exec().fence();
      const auto rows = all.values();
      const auto found = mean.values();
      for (std::int64_t i = 0; i < n; ++i) {
        double sum = 0;
        for (std::int64_t w = 0; w < workers; ++w)
          sum += static_cast<double>(rows[static_cast<std::size_t>(w * n + i)]);
        using A = Accumulate<D>;
        EXPECT_EQ(static_cast<double>(found[static_cast<std::size_t>(i)]),
                  static_cast<double>(
                      static_cast<D>(static_cast<A>(1.0 / static_cast<double>(workers) * sum))));
      }
    }
}

/// Three steps against the equations in double precision: each step rounds the momentum and the
/// weight a few times.
TYPED_TEST(Local, OuterUpdatesFollowTheRule) {
  using M = typename TypeParam::Weight;
  using D = typename TypeParam::Message;
  for (const std::int64_t n : vector_sizes)
    for (const OuterRule& rule :
         {OuterRule{0.7, 0.9, true}, {0.5, 0.8, false}, {1, 0, false}, {0.3, 0, true}}) {
      const auto start = testing::uniform<M>(n, 4);
      DeviceArray<M> outer(start), v(n);
      std::vector<double> weight(start.begin(), start.end()), momentum(weight.size(), 0.0);
      for (unsigned step = 0; step < 3; ++step) {
        const auto gradient = testing::uniform<D>(n, 5 + step);
        DeviceArray<D> d(gradient);
        outer_update<M, D>(Exec(), outer.flat(), rule.momentum > 0 ? v.flat() : View1<M>(),
                           d.flat(), rule);
        Exec().fence();
        for (std::size_t i = 0; i < weight.size(); ++i) {
          const auto g = static_cast<double>(gradient[i]);
          momentum[i] = rule.momentum * momentum[i] + g;
          weight[i] -=
              rule.learning_rate * (rule.nesterov ? g + rule.momentum * momentum[i] : momentum[i]);
        }
      }
      const auto found = outer.values();
      const double eps = std::numeric_limits<M>::epsilon();
      for (std::size_t i = 0; i < weight.size(); ++i)  // |values| < 10, at most 15 roundings
        EXPECT_NEAR(static_cast<double>(found[i]), weight[i], 150 * eps);
    }
}

TYPED_TEST(Local, MixingWithZeroIsACopy) {
  using M = typename TypeParam::Weight;
  for (const std::int64_t n : vector_sizes)
    for (const double mixing : {0.0, 0.25}) {
      const auto own = testing::uniform<M>(n, 8), shared = testing::uniform<M>(n, 9);
      DeviceArray<M> local(own), outer(shared);
      mix_with_outer<M>(Exec(), local.flat(), outer.flat(), mixing);
      Exec().fence();
      const auto found = local.values();
      for (std::size_t i = 0; i < found.size(); ++i) {
        if (mixing == 0) {
          EXPECT_EQ(found[i], shared[i]);
        } else {
          EXPECT_NEAR(found[i], 0.25 * own[i] + 0.75 * shared[i],
                      4 * std::numeric_limits<M>::epsilon());
        }
      }
    }
}

TYPED_TEST(Local, SwapsExchangeContents) {
  using D = typename TypeParam::Message;
  for (const std::int64_t n : vector_sizes) {
    const auto first = testing::uniform<D>(n, 10), second = testing::uniform<D>(n, 11);
    DeviceArray<D> a(first), b(second);
    swap_contents<D>(Exec(), a.flat(), b.flat());
    Exec().fence();
    const auto now_a = a.values(), now_b = b.values();
    for (std::size_t i = 0; i < now_a.size(); ++i) {
      EXPECT_EQ(static_cast<double>(now_a[i]), static_cast<double>(second[i]));
      EXPECT_EQ(static_cast<double>(now_b[i]), static_cast<double>(first[i]));
    }
  }
}

TEST(LocalKernels, RejectOtherShapes) {
  DeviceArray<float> a(5), b(6);
  EXPECT_THROW((outer_difference<float, float>(Exec(), a.flat(), b.flat(), a.flat())), Error);
  EXPECT_THROW(mean_of_workers<float>(Exec(), a.flat(), b.matrix(2, 3)), Error);
  EXPECT_THROW((outer_update<float, float>(Exec(), a.flat(), b.flat(), a.flat(), {1, 0.5, true})),
               Error);
  EXPECT_THROW(mix_with_outer<float>(Exec(), a.flat(), b.flat(), 0), Error);
  EXPECT_THROW(swap_contents<float>(Exec(), a.flat(), b.flat()), Error);
}

}  // namespace
}  // namespace trireme::kernels
