// The keys of [optimizer].
#include <trireme/base/text.hpp>
#include <trireme/deck/entry.hpp>

#include <algorithm>
#include <deque>
#include <string>

namespace trireme::deck {

using Str = std::string;
using Int = std::int64_t;

namespace {

/// `help` with the rules that read the key. The texts live as long as the program.
const char* for_readers(const char* key, const char* help) {
  static std::deque<std::string> texts;
  return texts.emplace_back(text(help, " (", rules::readers_of(key), ")")).c_str();
}

/// Default momenta: "0.95 for muon, 0.9 for others".
const char* default_momenta() {
  static const std::string all = [] {
    std::string words;
    for (std::size_t i = 0; i < names<OptimizerKind>().size(); ++i)
      if (const auto& rule = rules::rule_of(static_cast<OptimizerKind>(i));
          rule.default_momentum != rules::Rule::default_momentum)
        words += text(rule.default_momentum, " for ", rule.word, ", ");
    return text(words, rules::Rule::default_momentum, " for others");
  }();
  return all.c_str();
}

/// Words of the rules with Nesterov momentum by default.
const char* default_nesterov() {
  static const std::string all = [] {
    std::string words;
    for (std::size_t i = 0; i < names<OptimizerKind>().size(); ++i)
      if (const auto& rule = rules::rule_of(static_cast<OptimizerKind>(i));
          rule.nesterov_by_default)
        words += text("true for ", rule.word, " with momentum, ");
    return text(words, "false for others");
  }();
  return all.c_str();
}

}  // namespace

void optimizer_keys(std::vector<Entry>& out) {
  SectionKeys optimizer(out, "optimizer", &Config::optimizer, Effect::training);
  static const std::string kinds =
      text("update rule: ", rules::rules_with_sources(), "; see docs/optimizers.md");
  optimizer.choice("kind", &OptimizerConfig::kind, kinds.c_str())
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
              for_readers("beta1", "decay rate of the first moment"))
      .from(0)
      .below(1)
      .otherwise(0.9);
  optimizer
      .number("beta2", &OptimizerConfig::beta2,
              for_readers("beta2", "decay rate of the second moment"))
      .from(0)
      .below(1)
      .otherwise(0.95);
  optimizer
      .number("epsilon", &OptimizerConfig::epsilon,
              for_readers("epsilon",
                          "number added to the square root of the second moment, or for "
                          "adafactor the least square root"))
      .above(0)
      .otherwise(1e-8);
  optimizer
      .number("momentum", &OptimizerConfig::momentum,
              for_readers("momentum",
                          "momentum coefficient; with sgd and lars, 0 means no momentum "
                          "and no state"))
      .from(0)
      .below(1)
      .effect(Effect::state)
      .derive([](Config& c) { c.optimizer.momentum = c.optimizer.rule().default_momentum; },
              default_momenta());
  optimizer
      .boolean("nesterov", &OptimizerConfig::nesterov,
               for_readers("nesterov",
                           "Nesterov momentum, a look-ahead by one step; Sutskever et al. 2013"))
      .derive(
          [](Config& c) {
            OptimizerConfig& o = c.optimizer;
            o.nesterov = o.rule().nesterov_by_default && o.momentum > 0;
          },
          default_nesterov());
  optimizer
      .integer("newton_schulz_steps", &OptimizerConfig::newton_schulz_steps,
               for_readers("newton_schulz_steps",
                           "steps of the iteration that orthogonalises a matrix's momentum"))
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
              for_readers("trust_coefficient",
                          "length of an update as a fraction of the length of its array, per unit "
                          "of learning_rate"))
      .above(0)
      .otherwise(0.001);
  optimizer
      .number("decay_exponent", &OptimizerConfig::decay_exponent,
              for_readers("decay_exponent",
                          "the second moment keeps the share 1 − u^−decay_exponent in update u"))
      .above(0)
      .to(1)
      .otherwise(0.8);
  optimizer
      .number("update_threshold", &OptimizerConfig::update_threshold,
              for_readers("update_threshold",
                          "largest root mean square of an array's update before it is scaled"))
      .above(0)
      .otherwise(1.0);
  optimizer
      .number("minimum_scale", &OptimizerConfig::minimum_scale,
              for_readers("minimum_scale",
                          "least scale of an array's update, which otherwise is the root mean "
                          "square of the array"))
      .from(0)
      .otherwise(1e-3);
  optimizer
      .choice(
          "moments", &OptimizerConfig::moments,
          "type of the state arrays of the weights' shape: as the master weights (full), or bf16 "
          "with stochastic rounding; see docs/optimizers.md")
      .otherwise(Str("full"));
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
  out.emplace_back("optimizer", "rate_factors", KeyType::list,
                   "parts of the model with learning rates of their own: a factor of the learning "
                   "rate and a pattern as in frozen, such as \"0.1 vision\" or \"0.5 layers.0-3\"; "
                   "see docs/optimizers.md",
                   Effect::training)
      .in(&Config::optimizer, &OptimizerConfig::rate_factors)
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
