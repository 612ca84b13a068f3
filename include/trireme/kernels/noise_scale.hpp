#pragma once

#include <trireme/tensor/views.hpp>

#include <cstdint>

namespace trireme::kernels {

/// Elements of the state, a View1<double>: running means of the variance and of the squared norm of
/// the gradient. The noise scale is the variance divided by the squared norm.
enum NoiseState : int { noise_variance, noise_square, noise_state_size };

struct NoiseBatches {
  double small = 1;   ///< samples of a small batch
  double large = 2;   ///< samples of the large batch
  double number = 1;  ///< number of small batches in the sum of squares
  double decay = 0.99;
};

/// Adds a step to the running means (McCandlish et al. 2018, arXiv 1812.06162, appendix A.1): with
/// batches of b and of B > b samples, g² = small_sum[0] (B / b)² / (number s²) and G² = Σ_i
/// sums[chosen[i]] / s²,
///   variance: (g² − G²) / (1 / b − 1 / B);  square: (B G² − b g²) / (B − b).
/// small_sum[0] and `sums` are sums of squares of gradients that are divided by B and have the loss
/// scale s = loss_scale[0] as a factor. A step whose variance or square is not finite changes
/// nothing. state [noise_state_size], small_sum and loss_scale [1]. Asynchronous on exec.
void add_noise_sample(const Exec& exec, View1<double> state, View1<const double> small_sum,
                      View1<const double> sums, View1<const std::int64_t> chosen,
                      View1<const double> loss_scale, const NoiseBatches& batches);

}  // namespace trireme::kernels
