// Heads of latent attention against plain loops.
#include <trireme/kernels/latent_heads.hpp>

#include <trireme/base/check.hpp>

#include <kernels/cases.hpp>
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

constexpr LatentHeads some_heads[] = {{3, 12, 4, 8}, {1, 13, 13, 13}, {4, 6, 2, 5}, {2, 8, 0, 0}};

template <class T>
class Heads : public ::testing::Test {};
TYPED_TEST_SUITE(Heads, AllTypes);

TYPED_TEST(Heads, AreJoined) {
  using T = TypeParam;
  for (const LatentHeads& n : some_heads)
    for (const std::int64_t rows : small_sizes) {
      const std::int64_t of_kv = n.own() + n.value, wide = n.heads * n.size;
      const auto q = random_numbers<T>(rows * wide, 1);
      const auto kv = random_numbers<T>(rows * n.heads * of_kv, 2);
      const auto k = random_numbers<T>(rows * n.common, 3);
      const DeviceArray<T> d_q(q), d_kv(kv), d_k(k), qkv(rows * 3 * wide, T(9.0F));
      join_heads<T>(Exec{}, qkv.matrix(rows, 3 * wide), d_q.matrix(rows, wide),
                    d_kv.matrix(rows, n.heads * of_kv), d_k.matrix(rows, n.common), n);
      std::vector<double> expected;
      for (std::int64_t t = 0; t < rows; ++t) {
        for (std::int64_t i = 0; i < wide; ++i) expected.push_back(q[at(t * wide + i)]);
        for (std::int64_t h = 0; h < n.heads; ++h)
          for (std::int64_t i = 0; i < n.size; ++i)
            expected.push_back(i < n.own() ? kv[at((t * n.heads + h) * of_kv + i)]
                                           : k[at(t * n.common + i - n.own())]);
        for (std::int64_t h = 0; h < n.heads; ++h)
          for (std::int64_t i = 0; i < n.size; ++i)
            expected.push_back(i < n.value ? kv[at((t * n.heads + h) * of_kv + n.own() + i)] : 0);
      }
      expect_close(qkv.values(), expected, [](std::size_t) { return 0.0; });
    }
}

/// The gradient is the transpose of a linear function: ⟨dqkv, join(q, kv, k)⟩ = ⟨dq, q⟩ + ….
TYPED_TEST(Heads, GiveTheGradientsOfTheirParts) {
  using T = TypeParam;
  for (const LatentHeads& n : some_heads)
    for (const std::int64_t rows : small_sizes) {
      const std::int64_t of_kv = n.own() + n.value, wide = n.heads * n.size;
      const auto slopes = random_numbers<T>(rows * 3 * wide, 1);
      const DeviceArray<T> dqkv(slopes), dq(rows * wide, T(9.0F)),
          dkv(rows * n.heads * of_kv, T(9.0F)), dk(rows * n.common, T(9.0F));
      join_heads_backward<T>(Exec{}, dq.matrix(rows, wide), dkv.matrix(rows, n.heads * of_kv),
                             dk.matrix(rows, n.common), dqkv.matrix(rows, 3 * wide), n);
      std::vector<double> of_q, of_kvs, of_k(at(rows * n.common), 0.0), size = of_k;
      const auto key = [&](std::int64_t t, std::int64_t h, std::int64_t i) {
        return slopes[at(t * 3 * wide + wide + h * n.size + i)];
      };
      for (std::int64_t t = 0; t < rows; ++t) {
        for (std::int64_t i = 0; i < wide; ++i) of_q.push_back(slopes[at(t * 3 * wide + i)]);
        for (std::int64_t h = 0; h < n.heads; ++h) {
          for (std::int64_t i = 0; i < n.own(); ++i) of_kvs.push_back(key(t, h, i));
          for (std::int64_t i = 0; i < n.value; ++i)
            of_kvs.push_back(slopes[at(t * 3 * wide + 2 * wide + h * n.size + i)]);
          for (std::int64_t i = 0; i < n.common; ++i) {
            of_k[at(t * n.common + i)] += key(t, h, n.own() + i);
            size[at(t * n.common + i)] += std::abs(key(t, h, n.own() + i));
          }
        }
      }
      const auto exactly = [](std::size_t) { return 0.0; };
      expect_close(dq.values(), of_q, exactly);
      expect_close(dkv.values(), of_kvs, exactly);
      const double unit =
          sizeof(T) == 2 ? 1.0 / 128
                         : 4.0 * static_cast<double>(std::numeric_limits<Accumulate<T>>::epsilon());
      expect_close(dk.values(), of_k, [&](std::size_t i) { return unit * size[i]; });
    }
}

TYPED_TEST(Heads, HaveNarrowValues) {
  using T = TypeParam;
  for (const LatentHeads& n : some_heads)
    for (const std::int64_t rows : small_sizes) {
      const std::int64_t wide = n.heads * n.size, narrow = n.heads * n.value;
      const auto x = random_numbers<T>(rows * wide, 1);
      const DeviceArray<T> o(x), v(rows * narrow), dout(rows * wide, T(9.0F));
      take_values<T>(Exec{}, v.matrix(rows, narrow), o.matrix(rows, wide), n);
      take_values_backward<T>(Exec{}, dout.matrix(rows, wide), v.matrix(rows, narrow), n);
      std::vector<double> taken, placed;
      for (std::int64_t i = 0; i < rows * wide; ++i) {
        const bool value = i % n.size < n.value;
        if (value) taken.push_back(x[at(i)]);
        placed.push_back(value ? x[at(i)] : 0);
      }
      expect_close(v.values(), taken, [](std::size_t) { return 0.0; });
      expect_close(dout.values(), placed, [](std::size_t) { return 0.0; });
    }
}

TYPED_TEST(Heads, RejectWrongShapes) {
  using T = TypeParam;
  const LatentHeads n{2, 4, 2, 3};
  const DeviceArray<T> x(200);
  const auto q = x.matrix(3, 8), kv = x.matrix(3, 10), k = x.matrix(3, 2), qkv = x.matrix(3, 24);
  const Exec exec;
  EXPECT_THROW(join_heads<T>(exec, qkv, kv, kv, k, n), Error);
  EXPECT_THROW(join_heads<T>(exec, qkv, q, q, k, n), Error);
  EXPECT_THROW(join_heads<T>(exec, qkv, q, kv, q, n), Error);
  EXPECT_THROW(join_heads<T>(exec, q, q, kv, k, n), Error);
  EXPECT_THROW(join_heads_backward<T>(exec, kv, kv, k, qkv, n), Error);
  EXPECT_THROW(take_values<T>(exec, q, q, n), Error);
  EXPECT_THROW(take_values_backward<T>(exec, x.matrix(2, 8), x.matrix(3, 6), n), Error);
  EXPECT_THROW(take_values<T>(exec, q, q, {2, 4, 5, 3}), Error);
}

}  // namespace
}  // namespace trireme::kernels
