// Rescales attention's result for the sinks, and sums their gradients.
#include <trireme/kernels/attention_sinks.hpp>

#include <trireme/kernels/matmul.hpp>
#include <trireme/kernels/packs.hpp>
#include <trireme/tensor/expect.hpp>

namespace trireme::kernels {
namespace {

/// Columns of a head of o [T, H·K].
template <class T>
std::int64_t size_of_head(View2<const T> o, View3<const Accumulate<T>> logsumexp) {
  const std::int64_t heads = extent(logsumexp, 1);
  const std::int64_t size = heads == 0 ? 0 : extent(o, 1) / heads;
  expect_shape(o, "o", {extent(logsumexp, 0) * extent(logsumexp, 2), heads * size});
  return size;
}

}  // namespace

template <class T>
void attention_sinks_forward(const Handle& handle, View2<T> o, View3<Accumulate<T>> logsumexp,
                             View1<const T> sinks) {
  using A = Accumulate<T>;
  const std::int64_t heads = extent(logsumexp, 1), sequence = extent(logsumexp, 2);
  const std::int64_t size = size_of_head<T>(o, logsumexp);
  expect_shape(sinks, "sinks", {heads});
  for_rows(
      "kernels/attention_sinks_forward", handle, extent(o, 0),
      KOKKOS_LAMBDA(const Team& team, std::int64_t t) {
        for (std::int64_t h = 0; h < heads; ++h) {
          A& sum = logsumexp(t / sequence, h, t % sequence);
          const A before = sum, sink = static_cast<A>(sinks(h));
          const A largest = before > sink ? before : sink;
          const A after = largest + math::log(exp_of_difference(before - largest) +
                                              exp_of_difference(sink - largest));
          const A factor = exp_of_difference(before - after);
          team.team_barrier();  // all lanes have read the sum
          once(team, [&]() { sum = after; });
          T* row = row_of(o, t) + h * size;
          map_lanes(
              team, size, row, [&](std::int64_t, A v) { return factor * v; }, row);
        }
      });
}

template <class T>
void attention_sinks_backward(const Handle& handle, View1<Accumulate<T>> dsinks,
                              View2<const T> grad, View2<const T> o,
                              View3<const Accumulate<T>> logsumexp, View1<const T> sinks,
                              View2<Accumulate<T>> work) {
  using A = Accumulate<T>;
  const std::int64_t heads = extent(logsumexp, 1), sequence = extent(logsumexp, 2);
  const std::int64_t size = size_of_head<T>(o, logsumexp);
  expect_shape(sinks, "sinks", {heads});
  expect_shape(dsinks, "dsinks", {heads});
  expect_shape(grad, "grad", {extent(o, 0), extent(o, 1)});
  expect_shape(work, "work", {extent(o, 0), heads});
  for_rows(
      "kernels/attention_sinks_backward", handle, extent(o, 0),
      KOKKOS_LAMBDA(const Team& team, std::int64_t t) {
        for (std::int64_t h = 0; h < heads; ++h) {
          const A product = sum_of<A>(
              team, size, [](std::int64_t, A u, A v) { return u * v; }, row_of(grad, t) + h * size,
              row_of(o, t) + h * size);
          const A share = exp_of_difference(static_cast<A>(sinks(h)) -
                                            logsumexp(t / sequence, h, t % sequence));
          once(team, [&]() { work(t, h) = -share * product; });
        }
      });
  linear_backward_bias<A>(handle, dsinks, work);
}

#define TRIREME_INSTANTIATE(T)                                                                   \
  template void attention_sinks_forward<T>(const Handle&, View2<T>, View3<Accumulate<T>>,        \
                                           View1<const T>);                                      \
  template void attention_sinks_backward<T>(const Handle&, View1<Accumulate<T>>, View2<const T>, \
                                            View2<const T>, View3<const Accumulate<T>>,          \
                                            View1<const T>, View2<Accumulate<T>>)
TRIREME_INSTANTIATE(float);
TRIREME_INSTANTIATE(double);
TRIREME_INSTANTIATE(Bf16);
TRIREME_INSTANTIATE(Fp16);
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
