// Elementwise kernels of local training: differences of weights, their mean over the workers, the
// outer optimizer, and the mixing and swapping of weights.
#include <trireme/kernels/outer_step.hpp>

#include <trireme/kernels/packs.hpp>
#include <trireme/tensor/expect.hpp>

namespace trireme::kernels {

template <class M, class D>
void outer_difference(const Exec& exec, View1<D> d, View1<const M> outer, View1<const M> local) {
  const std::int64_t n = extent(d, 0);
  expect_shape(outer, "outer", {n});
  expect_shape(local, "local", {n});
  for_chunks(
      "kernels/outer_difference", exec, n,
      KOKKOS_LAMBDA(const Team& team, std::int64_t first, std::int64_t count) {
        const M* shared = outer.data() + first;
        const M* own = local.data() + first;
        D* out = d.data() + first;
        for_lanes(team, count,
                  [&](std::int64_t i) { out[i] = static_cast<D>(shared[i] - own[i]); });
      });
}

template <class D>
void mean_of_workers(const Exec& exec, View1<D> mean, View2<const D> all) {
  const std::int64_t n = extent(mean, 0);
  const std::int64_t workers = extent(all, 0);
  expect_shape(all, "all", {workers, n});
  const double share = 1.0 / static_cast<double>(workers);
  for_chunks(
      "kernels/mean_of_workers", exec, n,
      KOKKOS_LAMBDA(const Team& team, std::int64_t first, std::int64_t count) {
        const D* from = all.data() + first;
        D* out = mean.data() + first;
        for_lanes(team, count, [&](std::int64_t i) {
          double sum = 0;
          for (std::int64_t w = 0; w < workers; ++w) sum += static_cast<double>(from[w * n + i]);
          out[i] = static_cast<D>(static_cast<Accumulate<D>>(share * sum));
        });
      });
}

template <class M, class D>
void outer_update(const Exec& exec, View1<M> outer, View1<M> v, View1<const D> d,
                  const OuterRule& rule) {
  const std::int64_t n = extent(outer, 0);
  expect_shape(d, "d", {n});
  const bool has_momentum = rule.momentum > 0;
  if (has_momentum) expect_shape(v, "v", {n});
  const auto rate = static_cast<M>(rule.learning_rate);
  const auto mu = static_cast<M>(rule.momentum);
  const bool nesterov = rule.nesterov;
  for_chunks(
      "kernels/outer_update", exec, n,
      KOKKOS_LAMBDA(const Team& team, std::int64_t first, std::int64_t count) {
        const D* gradient = d.data() + first;
        M* weight = outer.data() + first;
        M* velocity = has_momentum ? v.data() + first : nullptr;
        for_lanes(team, count, [&](std::int64_t i) {
          const auto g = static_cast<M>(gradient[i]);
          M step = g;
          if (has_momentum) {
            velocity[i] = mu * velocity[i] + g;
            step = nesterov ? g + mu * velocity[i] : velocity[i];
          }
          weight[i] -= rate * step;
        });
      });
}

template <class M>
void mix_with_outer(const Exec& exec, View1<M> local, View1<const M> outer, double mixing) {
  const std::int64_t n = extent(local, 0);
  expect_shape(outer, "outer", {n});
  const auto kept = static_cast<M>(mixing);
  const auto taken = static_cast<M>(1.0 - mixing);
  for_chunks(
      "kernels/mix_with_outer", exec, n,
      KOKKOS_LAMBDA(const Team& team, std::int64_t first, std::int64_t count) {
        const M* shared = outer.data() + first;
        M* own = local.data() + first;
        for_lanes(team, count, [&](std::int64_t i) {
          own[i] = kept == M(0) ? shared[i] : kept * own[i] + taken * shared[i];
        });
      });
}

template <class T>
void swap_contents(const Exec& exec, View1<T> a, View1<T> b) {
  const std::int64_t n = extent(a, 0);
  expect_shape(b, "b", {n});
  for_chunks(
      "kernels/swap_contents", exec, n,
      KOKKOS_LAMBDA(const Team& team, std::int64_t first, std::int64_t count) {
        T* x = a.data() + first;
        T* y = b.data() + first;
        for_lanes(team, count, [&](std::int64_t i) {
          const T kept = x[i];
          x[i] = y[i];
          y[i] = kept;
        });
      });
}

#define TRIREME_INSTANTIATE(M, D)                                                              \
  template void outer_difference<M, D>(const Exec&, View1<D>, View1<const M>, View1<const M>); \
  template void outer_update<M, D>(const Exec&, View1<M>, View1<M>, View1<const D>,            \
                                   const OuterRule&);
TRIREME_INSTANTIATE(float, float)
TRIREME_INSTANTIATE(float, Bf16)
TRIREME_INSTANTIATE(double, double)
TRIREME_INSTANTIATE(double, Bf16)
#undef TRIREME_INSTANTIATE
template void mean_of_workers<float>(const Exec&, View1<float>, View2<const float>);
template void mean_of_workers<double>(const Exec&, View1<double>, View2<const double>);
template void mean_of_workers<Bf16>(const Exec&, View1<Bf16>, View2<const Bf16>);
template void mix_with_outer<float>(const Exec&, View1<float>, View1<const float>, double);
template void mix_with_outer<double>(const Exec&, View1<double>, View1<const double>, double);
template void swap_contents<float>(const Exec&, View1<float>, View1<float>);
template void swap_contents<double>(const Exec&, View1<double>, View1<double>);
template void swap_contents<Bf16>(const Exec&, View1<Bf16>, View1<Bf16>);
template void swap_contents<Fp16>(const Exec&, View1<Fp16>, View1<Fp16>);

}  // namespace trireme::kernels
