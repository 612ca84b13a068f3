#include <trireme/deck/entry.hpp>

#include <algorithm>

namespace trireme::deck {

using Str = std::string;
using Int = std::int64_t;

void optimizer_keys(std::vector<Entry>& out) {
  SectionKeys optimizer(out, "optimizer", &Config::optimizer, Effect::numbers);
  optimizer
      .choice("kind", &OptimizerConfig::kind,
              "update rule: adamw (Loshchilov and Hutter 2019), sgd with momentum, or lamb (You et "
              "al. 2020); see docs/optimizers.md")
      .otherwise(Str("adamw"));
  optimizer
      .number("learning_rate", &OptimizerConfig::learning_rate,
              "the highest, reached after the warm-up")
      .from(0)
      .otherwise(3e-4);
  optimizer
      .number("minimum_learning_rate", &OptimizerConfig::minimum_learning_rate,
              "where the decay ends; at most learning_rate")
      .from(0)
      .otherwise(0.0);
  optimizer
      .integer("warmup_steps", &OptimizerConfig::warmup_steps,
               "steps of linear rise from 0; at most decay_steps where the schedule decays")
      .unit("steps")
      .at_least(0)
      .at_most(steps_limit)
      .otherwise(Int{0});
  optimizer
      .choice("schedule", &OptimizerConfig::schedule,
              "of the learning rate behind the warm-up; see docs/optimizers.md")
      .otherwise(Str("cosine"));
  optimizer
      .integer("decay_steps", &OptimizerConfig::decay_steps,
               "step at which the learning rate has come down to the minimum; of no effect for "
               "constant and inverse_square_root")
      .unit("steps")
      .at_least(1)
      .at_most(steps_limit)
      .derive([](Config& c) { c.optimizer.decay_steps = c.run.steps; }, "run.steps");
  optimizer
      .integer("cooldown_steps", &OptimizerConfig::cooldown_steps,
               "of warmup_stable_decay: the last steps before decay_steps, in which the learning "
               "rate comes down")
      .unit("steps")
      .at_least(0)
      .at_most(steps_limit)
      .derive(
          [](Config& c) {
            OptimizerConfig& o = c.optimizer;
            o.cooldown_steps = o.schedule == LearningRateSchedule::warmup_stable_decay
                                   ? std::max<Int>(1, o.decay_steps / 10)
                                   : 0;
          },
          "a tenth of decay_steps; 0 for other schedules");
  optimizer
      .choice("cooldown_shape", &OptimizerConfig::cooldown_shape,
              "of warmup_stable_decay: how the learning rate comes down")
      .otherwise(Str("linear"));
  optimizer
      .number("beta1", &OptimizerConfig::beta1,
              "of adamw and lamb: decay of the first moment's average")
      .from(0)
      .below(1)
      .otherwise(0.9);
  optimizer
      .number("beta2", &OptimizerConfig::beta2,
              "of adamw and lamb: decay of the second moment's average")
      .from(0)
      .below(1)
      .otherwise(0.95);
  optimizer
      .number("epsilon", &OptimizerConfig::epsilon,
              "of adamw and lamb: added to the root of the second moment")
      .above(0)
      .otherwise(1e-8);
  optimizer
      .number("momentum", &OptimizerConfig::momentum,
              "of sgd: part of the former steps' sum that is kept; 0 is none, and no state")
      .from(0)
      .below(1)
      .otherwise(0.9);
  optimizer
      .boolean("nesterov", &OptimizerConfig::nesterov,
               "of sgd: look ahead by one step of the momentum (Nesterov; Sutskever et al. 2013)")
      .otherwise(false);
  optimizer
      .number("weight_decay", &OptimizerConfig::weight_decay,
              "of matrices; norms and biases do not decay. sgd adds it to the gradient")
      .from(0)
      .otherwise(0.1);
  optimizer
      .number("clip_norm", &OptimizerConfig::clip_norm,
              "largest norm of the whole gradient; 0 is no clipping")
      .from(0)
      .otherwise(1.0);
  optimizer
      .integer("maximum_skips", &OptimizerConfig::maximum_skips,
               "steps in a row that may be skipped, since their loss or gradient is not finite, "
               "before the run stops")
      .unit("steps")
      .at_least(1)
      .at_most(steps_limit)
      .otherwise(Int{10});
}

}  // namespace trireme::deck
