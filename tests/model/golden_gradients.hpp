#pragma once

#include <trireme/model/parameters.hpp>

#include "support/small_gpt.hpp"
#include "support/source_folder.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace trireme::model {

/// Losses and gradients that a make.py of tests/golden stored: STEM.txt has a line "loss" and a
/// line "NAME SUM PROJECTION SQUARES" per array, STEM.f64 every `stride`-th element of each array's
/// gradient, in the order of the lines.
struct GoldenGradients {
  std::int64_t stride;
  std::vector<double> losses;
  std::vector<std::string> names;  ///< of the arrays, in the order that numbers them for weights
  std::map<std::string, std::array<double, 3>> sums;  ///< Σ g, Σ g·noise, Σ g²
  std::vector<double> gradients;

  GoldenGradients(const std::string& name, std::int64_t every) : stride(every) {
    const std::string stem = testing::golden_file(name);
    std::ifstream in(stem + ".txt");
    for (std::string line; std::getline(in, line);) {
      std::istringstream words(line);
      std::string first;
      words >> first;
      if (first == "loss") {
        for (double loss = 0; words >> loss;) losses.push_back(loss);
        continue;
      }
      names.push_back(first);
      for (double& sum : sums[first]) words >> sum;
    }
    gradients = testing::read_doubles(stem + ".f64");
  }

  /// Sets the weights of the golden model, which follow from the arrays' numbers. The golden gains
  /// of a model with zero-centred gains are around 1.
  template <class P>
  void set_weights(const Parameters<P>& parameters, const deck::ModelConfig& model = {}) const {
    for (const auto& entry : parameters.entries()) {
      const std::string& name = entry.spec->name;
      const std::int64_t number = std::ranges::find(names, name) - names.begin();
      const double centre =
          model.zero_centered_gains && name.ends_with("gain") && !name.starts_with("vision.") ? 1
                                                                                              : 0;
      std::vector<typename P::Compute> values;
      for (std::int64_t i = 0; i < entry.weight.elements(); ++i)
        values.push_back(
            static_cast<typename P::Compute>(testing::golden_weight(number, name, i) - centre));
      testing::set_values(entry.weight.data, values);
    }
  }

  /// Expects the stored gradients to 1e-10 of the largest. A tied table has the gradients of both
  /// of its uses.
  void expect_gradients(const architecture::Architecture& architecture,
                        const Parameters<Fp64>& parameters) const {
    using namespace testing;
    double largest = 0;  // over the model: the norm of design promise 1
    for (const double g : gradients) largest = std::max(largest, std::abs(g));
    ASSERT_EQ(sums.size(), architecture.arrays.size());
    std::map<std::string, std::int64_t> first;  // of an array's stored gradients
    std::int64_t stored = 0;
    for (const std::string& name : names) {
      first[name] = stored;
      const auto spec =
          std::ranges::find(architecture.arrays, name, &architecture::ArraySpec::name);
      ASSERT_NE(spec, architecture.arrays.end()) << name;
      stored += (spec->elements() + stride - 1) / stride;
    }
    ASSERT_EQ(stored, std::ssize(gradients));
    for (const auto& entry : parameters.entries()) {
      const std::string& name = entry.spec->name;
      std::vector<double> g = values_of(entry.gradient.data);
      if (architecture.model.tied_embeddings && name == "embedding.token") {
        const auto& second = parameters.tied_gradient();
        const auto logits = values_of(View1<double>(second.data(), second.size()));
        for (std::size_t i = 0; i < g.size(); ++i) g[i] += logits[i];
      }
      double sum = 0, projection = 0, squares = 0;
      for (std::size_t i = 0; i < g.size(); ++i) {
        sum += g[i];
        projection += g[i] * golden_noise(static_cast<std::int64_t>(i));
        squares += g[i] * g[i];
        const auto k = static_cast<std::int64_t>(i);
        if (k % stride != 0) continue;
        const auto at = static_cast<std::size_t>(first.at(name) + k / stride);
        ASSERT_NEAR(g[i], gradients[at], 1e-10 * largest) << name << ", " << i;
      }
      // Each of n elements may be off by 1e-10 of the largest.
      const auto n = static_cast<double>(g.size());
      const auto& expected = sums.at(name);
      EXPECT_EQ(squares > 0, !entry.spec->constant) << name;
      EXPECT_NEAR(sum, expected[0], 1e-10 * largest * n) << name;
      EXPECT_NEAR(projection, expected[1], 1e-10 * largest * n) << name;
      EXPECT_NEAR(std::sqrt(squares), std::sqrt(expected[2]), 1e-10 * largest * std::sqrt(n))
          << name;
    }
  }

  /// Trains a model on a golden batch of `samples` samples and expects its losses and gradients.
  /// `set_batch(stage)` sets the fields, `expect_losses(stage)` compares the losses.
  template <class SetBatch, class ExpectLosses>
  void expect_batch(const deck::ModelConfig& model, std::int64_t samples, Recompute recompute,
                    bool split, const MicroContext& micro, const SetBatch& set_batch,
                    const ExpectLosses& expect_losses) const {
    const auto architecture = architecture::describe(model);
    Parameters<Fp64> parameters(architecture, architecture::whole_model(architecture), true);
    set_weights(parameters, model);
    const testing::WholeModel<Fp64> stage(architecture, parameters,
                                          {samples, 1, true, split, recompute});
    const kernels::Handle handle;
    set_batch(stage);
    stage.zero_loss(handle);
    stage.forward(handle, 0, micro);
    if (split) {
      stage.backward_input(handle, 0, micro);
      stage.backward_weight(handle, 0, micro, [](std::int64_t) {});
    } else {
      stage.backward(handle, 0, micro, [](std::int64_t) {});
    }
    expect_losses(stage);
    expect_gradients(architecture, parameters);
  }

  /// Expects the stored mean loss of a batch.
  void expect_loss(const testing::WholeModel<Fp64>& stage, const MicroContext& micro) const {
    EXPECT_NEAR(testing::value_of(stage.loss()) * micro.token_weight, losses.front(),
                1e-10 * losses.front());
  }
};

}  // namespace trireme::model
