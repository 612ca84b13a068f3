#include <trireme/kernels/noise_scale.hpp>

#include <trireme/kernels/math.hpp>
#include <trireme/tensor/expect.hpp>

#include <Kokkos_Core.hpp>

namespace trireme::kernels {

void add_noise_sample(const Exec& exec, View1<double> state, View1<const double> small_sum,
                      View1<const double> sums, View1<const std::int64_t> chosen,
                      View1<const double> loss_scale, const NoiseBatches& batches) {
  expect_shape(state, "state", {noise_state_size});
  expect_shape(small_sum, "small_sum", {1});
  expect_shape(loss_scale, "loss_scale", {1});
  const NoiseBatches n = batches;
  Kokkos::parallel_for(
      "kernels/add_noise_sample", Kokkos::RangePolicy<Exec>(exec, 0, 1),
      KOKKOS_LAMBDA(std::int64_t) {
        const double scale = loss_scale(0);
        double large = 0;
        for (std::size_t i = 0; i < chosen.extent(0); ++i)
          large += sums(static_cast<std::size_t>(chosen(i)));
        large /= scale * scale;
        const double ratio = n.large / (n.small * scale);
        const double small = small_sum(0) / n.number * ratio * ratio;
        const double variance = (small - large) / (1 / n.small - 1 / n.large);
        const double square = (n.large * large - n.small * small) / (n.large - n.small);
        if (!(variance - variance == 0) || !(square - square == 0)) return;  // not finite
        state(noise_variance) += (1 - n.decay) * (variance - state(noise_variance));
        state(noise_square) += (1 - n.decay) * (square - state(noise_square));
      });
}

}  // namespace trireme::kernels
