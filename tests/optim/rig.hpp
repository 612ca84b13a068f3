#pragma once

#include <trireme/model/rank_model.hpp>
#include <trireme/optim/optimizer.hpp>

#include "support/small_gpt.hpp"

#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace trireme::testing {

inline deck::OptimizerConfig golden_optimizer() {
  deck::OptimizerConfig o;
  o.learning_rate = 2e-2;
  o.minimum_learning_rate = 2e-3;
  o.warmup_steps = 5;
  o.decay_steps = 20;
  o.beta1 = 0.9;
  o.beta2 = 0.95;
  o.epsilon = 1e-8;
  o.weight_decay = 0.1;
  o.momentum = 0.9;
  o.clip_norm = 0.8;
  o.maximum_skips = 10;
  o.decay_exponent = 0.8;
  o.update_threshold = 1;
  o.minimum_scale = 1e-3;
  return o;
}

/// The whole model on one rank, with explicit calls of each pass and update.
struct Rig {
  using P = model::Fp64;

  Rig(std::int64_t micro_batch, bool split_backward,
      const deck::OptimizerConfig& config = golden_optimizer(),
      const deck::ModelConfig& model = golden_model())
      : micro(micro_batch),
        split(split_backward),
        architecture(architecture::describe(model)),
        parameters(architecture, architecture::whole_model(architecture), true),
        self(grid::Communicator::self()),
        optimizer(config, architecture, parameters, *self, *self, state_of(config),
                  state_of(config).elements, options_of(config)),
        stage(architecture, parameters, {micro_batch, 1, true, split_backward}) {
    set_golden_weights(parameters);
    optimizer.zero_state(handle);
  }

  architecture::StatePlacement state_of(const deck::OptimizerConfig& config) const {
    return architecture::whole_state(parameters.rank_arrays(), parameters.placement(),
                                     config.rule().matrices);
  }
  optim::Optimizer<P>::Options options_of(const deck::OptimizerConfig& config) const {
    optim::Optimizer<P>::Options options;
    options.tensor = self.get();
    options.other_capacity = state_of(config).others;
    return options;
  }

  /// Computes loss and gradients of the batch of `step`, one micro-batch at a time.
  double pass(std::int64_t step) {
    const auto model = golden_model();
    stage.zero_loss(handle);
    optimizer.zero_gradients(handle);
    for (std::int64_t first = 0; first < golden_batch; first += micro) {
      set_golden_tokens(stage, step, micro, first);
      model::MicroContext c;
      c.first_sample = first;
      c.sequence = model.sequence;
      c.token_weight = 1.0 / static_cast<double>(golden_batch * model.sequence);
      stage.forward(handle, 0, c);
      if (split) {
        stage.backward_input(handle, 0, c);
        stage.backward_weight(handle, 0, c, [](std::int64_t) {});
      } else {
        stage.backward(handle, 0, c, [](std::int64_t) {});
      }
    }
    optimizer.combine_tied_gradients(handle);
    return value_of(stage.loss()) / static_cast<double>(golden_batch * model.sequence);
  }

  /// Performs the update of `step` with learning rate `rate`; returns the norm.
  double update(std::int64_t step, double rate) {
    optimizer.find_norm(handle);
    optimizer.step(handle, step, rate);
    return value_of(optimizer.gradient_norm());
  }

  kernels::Handle handle;
  std::int64_t micro;
  bool split;
  architecture::Architecture architecture;
  model::Parameters<P> parameters;
  std::unique_ptr<grid::Communicator> self;
  optim::Optimizer<P> optimizer;
  WholeModel<P> stage;
};

/// Reads the loss and gradient norm of each step from a script's file.
inline std::vector<std::pair<double, double>> golden_losses(const std::string& path) {
  std::vector<std::pair<double, double>> losses;
  std::ifstream in(path);
  for (double loss = 0, norm = 0; in >> loss >> norm;) losses.emplace_back(loss, norm);
  return losses;
}

}  // namespace trireme::testing
