#pragma once

#include <trireme/architecture/objective.hpp>
#include <trireme/model/rank_model.hpp>
#include <trireme/plan/memory.hpp>

#include "support/small_gpt.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme::model {

/// Expects that the gradients of `loss()`, of one element of each array, are its derivatives. The
/// gradients were computed.
template <class Loss>
void expect_derivatives(Parameters<Fp64>& parameters, const Loss& loss) {
  using namespace testing;
  std::vector<double> analytic;
  for (const auto& e : parameters.entries())
    if (e.local.number > 0 && !e.spec->constant && !e.spec->counts_tokens)
      analytic.push_back(value_of(e.gradient.data, e.weight.elements() / 2));
  // Central differences at h = 1e-5 of a loss of at most 8: rounding 1000 ε f / h = 2e-7 with sums
  // of 1000 terms, truncation h² f''' / 6 = 2e-9 at a third derivative of 100.
  const double h = 1e-5;
  std::size_t k = 0;
  for (const auto& e : parameters.entries()) {
    if (e.local.number == 0 || e.spec->constant || e.spec->counts_tokens) continue;
    const std::int64_t i = e.weight.elements() / 2;
    const double saved = value_of(e.weight.data, i);
    set_value(e.weight.data, i, saved + h);
    const double above = loss();
    set_value(e.weight.data, i, saved - h);
    const double below = loss();
    set_value(e.weight.data, i, saved);
    EXPECT_NEAR(analytic[k++], (above - below) / (2 * h), 2e-7) << e.spec->name;
  }
}

/// Expects that a whole model in fp32 with two slots allocates what the plan says, in all choices
/// of recomputation, with whole and split backward passes. `change(model, split)` prepares a model.
template <class Change>
void expect_planned_bytes(const deck::ModelConfig& model, const Change& change) {
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full})
    for (const bool split : {false, true}) {
      deck::Config config;
      config.model = model;
      change(config.model, split);
      config.batch.micro = 3;
      config.precision.compute = DType::fp32;
      config.parallel.recompute = recompute;
      const auto architecture = architecture::describe(config.model);
      const Parameters<Fp32> parameters(architecture, architecture::whole_model(architecture),
                                        true);
      const testing::WholeModel<Fp32> stage(architecture, parameters,
                                            {3, 2, true, split, recompute});
      const auto plan = plan::training_memory(config, architecture, parameters.shard(),
                                              {.slots = 2, .split_backward = split}, {});
      EXPECT_EQ(plan.at(0).bytes, parameters.weight_bytes());
      EXPECT_EQ(plan.at(1).bytes, parameters.gradient_bytes());
      EXPECT_EQ(plan.at(3).bytes, stage.rank_model().saved_bytes());
      const std::int64_t losses = architecture::objective_of(config.model).term_sums();
      EXPECT_EQ(plan.at(5).bytes - plan::history_bytes(config.run, losses),
                stage.rank_model().scratch_bytes());
    }
}

}  // namespace trireme::model
