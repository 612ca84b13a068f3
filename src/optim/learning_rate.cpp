#include <trireme/optim/learning_rate.hpp>

#include <cmath>
#include <numbers>

namespace trireme::optim {

double learning_rate(const deck::OptimizerConfig& o, std::int64_t step) {
  if (step <= o.warmup_steps)
    return o.learning_rate * static_cast<double>(step) / static_cast<double>(o.warmup_steps);
  if (step >= o.decay_steps) return o.minimum_learning_rate;
  const double progress = static_cast<double>(step - o.warmup_steps) /
                          static_cast<double>(o.decay_steps - o.warmup_steps);
  const double cosine = 0.5 * (1 + std::cos(std::numbers::pi * progress));
  return o.minimum_learning_rate + (o.learning_rate - o.minimum_learning_rate) * cosine;
}

}  // namespace trireme::optim
