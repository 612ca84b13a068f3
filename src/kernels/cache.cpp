#include <trireme/kernels/cache.hpp>

#include <trireme/base/check.hpp>
#include <trireme/tensor/expect.hpp>

namespace trireme::kernels {

template <class T>
void cache_append(const Exec& exec, View2<T> q, View3<T> key_cache, View3<T> value_cache,
                  View2<const T> qkv, std::int64_t position) {
  const std::int64_t batch = extent(q, 0);
  const std::int64_t queries = extent(q, 1);
  const std::int64_t keys = extent(key_cache, 2);
  const std::int64_t most = extent(key_cache, 1);
  check(position >= 0 && position < most, "position ", position, " is not within the ", most,
        " positions of the cache");
  expect_shape(qkv, "qkv", {batch, queries + 2 * keys});
  expect_shape(key_cache, "key_cache", {batch, most, keys});
  expect_shape(value_cache, "value_cache", {batch, most, keys});
  const std::int64_t columns = queries + 2 * keys;
  Kokkos::parallel_for(
      "kernels/cache_append",
      Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>(exec, 0, batch * columns),
      KOKKOS_LAMBDA(const std::int64_t i) {
        const std::int64_t b = i / columns;
        const std::int64_t c = i % columns;
        if (c < queries)
          q(b, c) = qkv(b, c);
        else if (c < queries + keys)
          key_cache(b, position, c - queries) = qkv(b, c);
        else
          value_cache(b, position, c - queries - keys) = qkv(b, c);
      });
}

#define TRIREME_INSTANTIATE(T)                                                             \
  template void cache_append<T>(const Exec&, View2<T>, View3<T>, View3<T>, View2<const T>, \
                                std::int64_t);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(Bf16)
TRIREME_INSTANTIATE(Fp16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
