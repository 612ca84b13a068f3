// Copies between the tensors of latent attention and the heads that attention computes with.
#include <trireme/kernels/latent_heads.hpp>

#include <trireme/base/check.hpp>
#include <trireme/kernels/packs.hpp>
#include <trireme/tensor/expect.hpp>

namespace trireme::kernels {
namespace {

void expect_heads(const LatentHeads& of) {
  check(of.heads >= 0 && of.common >= 0 && of.common <= of.size && of.value >= 0 &&
            of.value <= of.size,
        of.heads, " heads with ", of.common, " common columns and values of ", of.value,
        " columns, expected at most the ", of.size, " columns of a key");
}

template <class T>
void expect_joined(View2<const T> qkv, View2<const T> q, View2<const T> kv, View2<const T> k,
                   const LatentHeads& of) {
  expect_heads(of);
  const std::int64_t rows = extent(qkv, 0);
  expect_shape(qkv, "qkv", {rows, 3 * of.heads * of.size});
  expect_shape(q, "q", {rows, of.heads * of.size});
  expect_shape(kv, "kv", {rows, of.heads * (of.own() + of.value)});
  expect_shape(k, "k", {rows, of.common});
}

template <class T>
KOKKOS_FORCEINLINE_FUNCTION void clear_lanes(const Team& team, std::int64_t n, T* to) {
  for_lanes(team, n, [&](std::int64_t i) { to[i] = T(0.0F); });
}

}  // namespace

template <class T>
void join_heads(const Exec& exec, View2<T> qkv, View2<const T> q, View2<const T> kv,
                View2<const T> k, const LatentHeads& of) {
  expect_joined<T>(qkv, q, kv, k, of);
  const std::int64_t heads = of.heads, size = of.size, own = of.own(), common = of.common;
  const std::int64_t value = of.value;
  for_rows(
      "kernels/join_heads", exec, extent(qkv, 0), KOKKOS_LAMBDA(const Team& team, std::int64_t t) {
        T* queries = row_of(qkv, t);
        copy_lanes(team, heads * size, queries, row_of(q, t));
        for (std::int64_t h = 0; h < heads; ++h) {
          T* key = queries + (heads + h) * size;
          T* values = queries + (2 * heads + h) * size;
          const T* from = row_of(kv, t) + h * (own + value);
          copy_lanes(team, own, key, from);
          copy_lanes(team, common, key + own, row_of(k, t));
          copy_lanes(team, value, values, from + own);
          clear_lanes(team, size - value, values + value);
        }
      });
}

template <class T>
void join_heads_backward(const Exec& exec, View2<T> dq, View2<T> dkv, View2<T> dk,
                         View2<const T> dqkv, const LatentHeads& of) {
  using A = Accumulate<T>;
  expect_joined<T>(dqkv, dq, dkv, dk, of);
  const std::int64_t heads = of.heads, size = of.size, own = of.own(), common = of.common;
  const std::int64_t value = of.value;
  for_rows(
      "kernels/join_heads_backward", exec, extent(dqkv, 0),
      KOKKOS_LAMBDA(const Team& team, std::int64_t t) {
        const T* queries = row_of(dqkv, t);
        copy_lanes(team, heads * size, row_of(dq, t), queries);
        const T* keys = queries + heads * size;
        for (std::int64_t h = 0; h < heads; ++h) {
          T* to = row_of(dkv, t) + h * (own + value);
          copy_lanes(team, own, to, keys + h * size);
          copy_lanes(team, value, to + own, keys + (heads + h) * size);
        }
        T* sums = row_of(dk, t);
        for_lanes(team, common, [&](std::int64_t i) {
          A sum = 0;
          for (std::int64_t h = 0; h < heads; ++h) sum += static_cast<A>(keys[h * size + own + i]);
          sums[i] = static_cast<T>(sum);
        });
      });
}

template <class T>
void take_values(const Exec& exec, View2<T> v, View2<const T> o, const LatentHeads& of) {
  expect_heads(of);
  const std::int64_t heads = of.heads, size = of.size, value = of.value;
  expect_shape(o, "o", {extent(v, 0), heads * size});
  expect_shape(v, "v", {extent(v, 0), heads * value});
  for_rows(
      "kernels/take_values", exec, extent(v, 0), KOKKOS_LAMBDA(const Team& team, std::int64_t t) {
        for (std::int64_t h = 0; h < heads; ++h)
          copy_lanes(team, value, row_of(v, t) + h * value, row_of(o, t) + h * size);
      });
}

template <class T>
void take_values_backward(const Exec& exec, View2<T> dout, View2<const T> dv,
                          const LatentHeads& of) {
  expect_heads(of);
  const std::int64_t heads = of.heads, size = of.size, value = of.value;
  expect_shape(dout, "dout", {extent(dv, 0), heads * size});
  expect_shape(dv, "dv", {extent(dv, 0), heads * value});
  for_rows(
      "kernels/take_values_backward", exec, extent(dv, 0),
      KOKKOS_LAMBDA(const Team& team, std::int64_t t) {
        for (std::int64_t h = 0; h < heads; ++h) {
          T* to = row_of(dout, t) + h * size;
          copy_lanes(team, value, to, row_of(dv, t) + h * value);
          clear_lanes(team, size - value, to + value);
        }
      });
}

#define TRIREME_INSTANTIATE(T)                                                                    \
  template void join_heads<T>(const Exec&, View2<T>, View2<const T>, View2<const T>,              \
                              View2<const T>, const LatentHeads&);                                \
  template void join_heads_backward<T>(const Exec&, View2<T>, View2<T>, View2<T>, View2<const T>, \
                                       const LatentHeads&);                                       \
  template void take_values<T>(const Exec&, View2<T>, View2<const T>, const LatentHeads&);        \
  template void take_values_backward<T>(const Exec&, View2<T>, View2<const T>, const LatentHeads&)
TRIREME_INSTANTIATE(float);
TRIREME_INSTANTIATE(double);
TRIREME_INSTANTIATE(Bf16);
TRIREME_INSTANTIATE(Fp16);
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
