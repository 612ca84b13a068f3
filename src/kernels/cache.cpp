#include <trireme/kernels/cache.hpp>

#include <trireme/tensor/expect.hpp>

namespace trireme::kernels {

template <class T>
void cache_append(const Exec& exec, View2<T> q, View3<T> key_cache, View3<T> value_cache,
                  View2<const T> qkv, const CacheRows& rows) {
  const std::int64_t count = extent(q, 0);
  const std::int64_t queries = extent(q, 1);
  const std::int64_t keys = extent(key_cache, 2);
  const std::int64_t texts = extent(key_cache, 0);
  const std::int64_t most = extent(key_cache, 1);
  expect_shape(qkv, "qkv", {count, queries + 2 * keys});
  expect_shape(key_cache, "key_cache", {texts, most, keys});
  expect_shape(value_cache, "value_cache", {texts, most, keys});
  expect_shape(rows.texts, "texts", {count});
  expect_shape(rows.positions, "positions", {count});
  const CacheRows at = rows;
  const std::int64_t columns = queries + 2 * keys;
  Kokkos::parallel_for(
      "kernels/cache_append",
      Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>(exec, 0, count * columns),
      KOKKOS_LAMBDA(const std::int64_t i) {
        const std::int64_t r = i / columns;
        const std::int64_t c = i % columns;
        const std::int64_t b = at.texts(r);
        if (c < queries)
          q(r, c) = qkv(r, c);
        else if (b < 0)
          return;
        else if (c < queries + keys)
          key_cache(b, at.positions(r), c - queries) = qkv(r, c);
        else
          value_cache(b, at.positions(r), c - queries - keys) = qkv(r, c);
      });
}

#define TRIREME_INSTANTIATE(T)                                                             \
  template void cache_append<T>(const Exec&, View2<T>, View3<T>, View3<T>, View2<const T>, \
                                const CacheRows&);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(Bf16)
TRIREME_INSTANTIATE(Fp16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
