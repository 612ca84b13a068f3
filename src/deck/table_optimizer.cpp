// The keys of [optimizer].
#include <trireme/deck/entry.hpp>

#include <algorithm>

namespace trireme::deck {

using Str = std::string;
using Int = std::int64_t;

void optimizer_keys(std::vector<Entry>& out) {
  SectionKeys optimizer(out, "optimizer", &Config::optimizer, Effect::training);
  optimizer
      .choice(
          "kind", &OptimizerConfig::kind,
          "update rule: adamw (Loshchilov and Hutter 2019), sgd with momentum, lamb (You et al. "
          "2020), lars (You et al. 2017), or muon (Jordan et al. 2024); see docs/optimizers.md")
      .effect(Effect::state)
      .otherwise(Str("adamw"));
  optimizer
      .number("learning_rate", &OptimizerConfig::learning_rate,
              "peak learning rate, reached after the warm-up")
      .from(0)
      .otherwise(3e-4);
  optimizer
      .number("minimum_learning_rate", &OptimizerConfig::minimum_learning_rate,
              "learning rate at the end of the decay; at most learning_rate")
      .from(0)
      .otherwise(0.0);
  optimizer
      .integer("warmup_steps", &OptimizerConfig::warmup_steps,
               "steps of linear warm-up from 0; at most decay_steps where the schedule decays")
      .unit("steps")
      .at_least(0)
      .at_most(steps_limit)
      .otherwise(Int{0});
  optimizer
      .choice("schedule", &OptimizerConfig::schedule,
              "shape of the learning rate after the warm-up; see docs/optimizers.md")
      .otherwise(Str("cosine"));
  optimizer
      .integer("decay_steps", &OptimizerConfig::decay_steps,
               "step at which the learning rate reaches its minimum; no effect for constant and "
               "inverse_square_root")
      .unit("steps")
      .at_least(1)
      .at_most(steps_limit)
      .derive([](Config& c) { c.optimizer.decay_steps = c.run.steps; }, "run.steps");
  optimizer
      .integer("cooldown_steps", &OptimizerConfig::cooldown_steps,
               "length of the cooldown of warmup_stable_decay, which ends at decay_steps")
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
              "shape of the cooldown of warmup_stable_decay")
      .otherwise(Str("linear"));
  optimizer
      .choice("learning_rate_scaling", &OptimizerConfig::learning_rate_scaling,
              "how learning rates follow the batch: by b = global batch of the step / "
              "reference_batch (linear; Goyal et al. 2017) or by the square root of b")
      .otherwise(Str("none"));
  optimizer
      .integer("reference_batch", &OptimizerConfig::reference_batch,
               "global batch that learning_rate and minimum_learning_rate are meant for; no effect "
               "without learning_rate_scaling")
      .unit("samples")
      .at_least(1)
      .derive([](Config& c) { c.optimizer.reference_batch = c.batch.global; }, "batch.global");
  optimizer
      .number("beta1", &OptimizerConfig::beta1,
              "decay rate of the first moment (adamw, lamb, and muon's other arrays)")
      .from(0)
      .below(1)
      .otherwise(0.9);
  optimizer
      .number("beta2", &OptimizerConfig::beta2,
              "decay rate of the second moment (adamw, lamb, and muon's other arrays)")
      .from(0)
      .below(1)
      .otherwise(0.95);
  optimizer
      .number("epsilon", &OptimizerConfig::epsilon,
              "number added to the square root of the second moment (adamw, lamb, and muon's other "
              "arrays)")
      .above(0)
      .otherwise(1e-8);
  optimizer
      .number(
          "momentum", &OptimizerConfig::momentum,
          "momentum coefficient (sgd, lars and muon); with sgd and lars 0 means no momentum and "
          "no state")
      .from(0)
      .below(1)
      .effect(Effect::state)
      .derive(
          [](Config& c) {
            c.optimizer.momentum = c.optimizer.kind == OptimizerKind::muon ? 0.95 : 0.9;
          },
          "0.95 for muon, 0.9 for others");
  optimizer
      .boolean("nesterov", &OptimizerConfig::nesterov,
               "Nesterov momentum, a look-ahead by one step (sgd and muon; Sutskever et al. 2013)")
      .derive(
          [](Config& c) {
            OptimizerConfig& o = c.optimizer;
            o.nesterov = o.kind == OptimizerKind::muon && o.momentum > 0;
          },
          "true for muon with momentum, false for others");
  optimizer
      .integer("newton_schulz_steps", &OptimizerConfig::newton_schulz_steps,
               "steps of the iteration that orthogonalises a matrix's momentum (muon)")
      .unit("steps")
      .at_least(1)
      .at_most(100)
      .otherwise(Int{5});
  optimizer
      .choice("muon_scale", &OptimizerConfig::muon_scale,
              "factor of muon's updates: 0.2 √max(outputs, inputs), which gives updates the size "
              "of adamw's (match_adamw; Liu et al. 2025), or √max(1, outputs / inputs) (spectral; "
              "Jordan et al. 2024)")
      .otherwise(Str("match_adamw"));
  optimizer
      .number("muon_rate_factor", &OptimizerConfig::muon_rate_factor,
              "factor of the learning rate for muon's matrices; adamw updates all other arrays")
      .above(0)
      .otherwise(1.0);
  optimizer
      .number("trust_coefficient", &OptimizerConfig::trust_coefficient,
              "length of an update as a fraction of the length of its array, per unit of "
              "learning_rate (lars)")
      .above(0)
      .otherwise(0.001);
  optimizer
      .number("weight_decay", &OptimizerConfig::weight_decay,
              "weight decay coefficient of matrices; norms and biases do not decay; sgd and lars "
              "add the decay to the gradient")
      .from(0)
      .otherwise(0.1);
  optimizer
      .number("clip_norm", &OptimizerConfig::clip_norm,
              "maximum norm of the whole gradient; 0 means no clipping")
      .from(0)
      .otherwise(1.0);
  out.emplace_back("optimizer", "frozen", KeyType::list,
                   "patterns of the names of arrays that are not trained, such as \"layers.0-3\", "
                   "\"embedding\" or \"layers.*.feed_forward\"; see docs/fine_tuning.md",
                   Effect::state)
      .in(&Config::model, &ModelConfig::frozen)
      .otherwise(Words{});
  optimizer
      .integer("maximum_skips", &OptimizerConfig::maximum_skips,
               "consecutive steps that may be skipped because of a non-finite loss or gradient "
               "before the run stops")
      .unit("steps")
      .at_least(1)
      .at_most(steps_limit)
      .otherwise(Int{10});
}

}  // namespace trireme::deck
