#include <trireme/optim/learning_rate.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trireme::optim {
namespace {

/// Remaining fraction of a cosine decay at progress x in [0, 1].
double half_cosine(double x) {
  return 0.5 * (1 + std::cos(std::numbers::pi * x));
}

double left_of_cooldown(CooldownShape shape, double y) {
  switch (shape) {
    case CooldownShape::linear:
      return 1 - y;
    case CooldownShape::cosine:
      return half_cosine(y);
    case CooldownShape::exponential:
      return std::exp2(1 - y) - 1;
    case CooldownShape::minus_square_root:
      return 1 - std::sqrt(y);
  }
  return 0;
}

/// Remaining fraction of peak − minimum at a step before decay_steps.
double left(const deck::OptimizerConfig& o, std::int64_t step) {
  const double progress = static_cast<double>(step - o.warmup_steps) /
                          static_cast<double>(o.decay_steps - o.warmup_steps);
  switch (o.schedule) {
    case LearningRateSchedule::cosine:
      return half_cosine(progress);
    case LearningRateSchedule::linear:
      return 1 - progress;
    case LearningRateSchedule::warmup_stable_decay: {
      const std::int64_t begin = o.decay_steps - o.cooldown_steps;
      return left_of_cooldown(o.cooldown_shape, static_cast<double>(step - begin) /
                                                    static_cast<double>(o.cooldown_steps));
    }
    case LearningRateSchedule::constant:
    case LearningRateSchedule::inverse_square_root:
      break;
  }
  return 1;
}

}  // namespace

double learning_rate(const deck::OptimizerConfig& o, std::int64_t step) {
  if (step <= o.warmup_steps)
    return o.learning_rate * static_cast<double>(step) / static_cast<double>(o.warmup_steps);
  if (o.schedule == LearningRateSchedule::constant) return o.learning_rate;
  if (o.schedule == LearningRateSchedule::inverse_square_root) {
    const auto from = static_cast<double>(std::max<std::int64_t>(o.warmup_steps, 1));
    return std::max(o.minimum_learning_rate,
                    o.learning_rate * std::sqrt(from / static_cast<double>(step)));
  }
  if (o.schedule == LearningRateSchedule::warmup_stable_decay &&
      step <= o.decay_steps - o.cooldown_steps)
    return o.learning_rate;
  if (step >= o.decay_steps) return o.minimum_learning_rate;
  return o.minimum_learning_rate + (o.learning_rate - o.minimum_learning_rate) * left(o, step);
}

double learning_rate(const deck::OptimizerConfig& o, std::int64_t step, std::int64_t batch) {
  const double rate = learning_rate(o, step);
  const double b = static_cast<double>(batch) / static_cast<double>(o.reference_batch);
  switch (o.learning_rate_scaling) {
    case RateScaling::none:
      return rate;
    case RateScaling::linear:
      return b * rate;
    case RateScaling::square_root:
      return std::sqrt(b) * rate;
  }
  return rate;
}

}  // namespace trireme::optim
