// The keys of [local].
#include <trireme/deck/entry.hpp>

namespace trireme::deck {

using Str = std::string;
using Int = std::int64_t;

void local_keys(std::vector<Entry>& out) {
  out.emplace_back("local", "workers", KeyType::integer,
                   "copies of the model that train apart, each on its part of every batch (DiLoCo; "
                   "Douillard et al. 2023); 1 means no local training",
                   Effect::training)
      .in(&Config::parallel, &ParallelConfig::workers)
      .at_least(1)
      .at_most(65536)
      .otherwise(Int{1});
  SectionKeys local(out, "local", &Config::local, Effect::training);
  local
      .integer("inner_steps", &LocalConfig::inner_steps,
               "steps of the workers between two outer steps, which bring them together")
      .unit("steps")
      .at_least(1)
      .at_most(steps_limit)
      .otherwise(Int{50});
  local
      .choice("outer_optimizer", &LocalConfig::outer_optimizer,
              "rule of the outer steps, whose gradient is the mean difference between the shared "
              "weights and those of the workers: sgd with momentum, or nesterov")
      .otherwise(Str("nesterov"));
  local
      .number("outer_learning_rate", &LocalConfig::outer_learning_rate,
              "learning rate of the outer steps; 1 without momentum is the mean of the workers")
      .above(0)
      .otherwise(0.7);
  local
      .number("outer_momentum", &LocalConfig::outer_momentum,
              "momentum coefficient of the outer steps; 0 means no momentum and no state")
      .from(0)
      .below(1)
      .otherwise(0.9);
  local
      .integer(
          "fragments", &LocalConfig::fragments,
          "parts of the model whose outer steps are at different times; layers are assigned in "
          "turn (Streaming DiLoCo; Douillard et al. 2025); at most inner_steps")
      .at_least(1)
      .at_most(65536)
      .otherwise(Int{1});
  local
      .integer("delay", &LocalConfig::delay,
               "steps during which the differences of a fragment are in flight, until its outer "
               "step; at most inner_steps / fragments")
      .unit("steps")
      .at_least(0)
      .at_most(steps_limit)
      .otherwise(Int{0});
  local
      .number("mixing", &LocalConfig::mixing,
              "share of its own weights that a worker keeps in an outer step")
      .from(0)
      .below(1)
      .derive([](Config& c) { c.local.mixing = c.local.delay > 0 ? 0.5 : 0; },
              "0.5 with a delay, otherwise 0");
  local
      .choice("differences", &LocalConfig::differences,
              "type of the differences that workers send: that of the updated weights (full), or "
              "bf16")
      .otherwise(Str("full"));
}

}  // namespace trireme::deck
