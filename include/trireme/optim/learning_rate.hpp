#pragma once

#include <trireme/deck/config.hpp>

#include <cstdint>

namespace trireme::optim {

/// Learning rate of step 1, 2, …: linear warm-up to the peak over `warmup_steps` = W, then by
/// `schedule`, with x = (step − W) / (decay_steps − W):
///   cosine               minimum + (peak − minimum) (1 + cos πx) / 2   (Loshchilov & Hutter 2017)
///   linear               minimum + (peak − minimum) (1 − x)
///   constant             peak
///   inverse_square_root  peak √(max(W, 1) / step), at least the minimum   (Vaswani et al. 2017)
///   warmup_stable_decay  peak, then over the last `cooldown_steps` before decay_steps down to the
///                        minimum   (Hu et al. 2024, MiniCPM)
/// cosine, linear and warmup_stable_decay stay at the minimum from decay_steps on. In the cool-down
/// of warmup_stable_decay, of which the fraction y has passed, the remaining fraction of peak −
/// minimum is 1 − y (linear), (1 + cos πy) / 2 (cosine), 2^(1−y) − 1 (exponential, as in
/// Megatron-LM), or 1 − √y (minus_square_root, Hägele et al. 2024).
double learning_rate(const deck::OptimizerConfig& optimizer, std::int64_t step);

/// Learning rate of a step whose batch has `batch` samples. With b = batch / reference_batch, the
/// rate above is multiplied by b (linear; Goyal et al. 2017, arXiv 1706.02677), √b (square_root;
/// Krizhevsky 2014, arXiv 1404.5997) or 1 (none).
double learning_rate(const deck::OptimizerConfig& optimizer, std::int64_t step, std::int64_t batch);

}  // namespace trireme::optim
