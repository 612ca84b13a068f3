#pragma once

#include <trireme/deck/config.hpp>

#include <cstdint>

namespace trireme::optim {

/// Learning rate of step 1, 2, …: linear warm-up to the peak over `warmup_steps`, then a cosine
/// down to the minimum at `decay_steps` (Loshchilov & Hutter 2017, without restarts), constant
/// after.
double learning_rate(const deck::OptimizerConfig& optimizer, std::int64_t step);

}  // namespace trireme::optim
