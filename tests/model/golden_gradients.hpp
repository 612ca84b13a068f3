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

  /// Sets the weights of the golden model, which follow from the arrays' numbers.
  template <class P>
  void set_weights(const Parameters<P>& parameters) const {
    for (const auto& entry : parameters.entries()) {
      const std::string& name = entry.spec->name;
      const std::int64_t number = std::ranges::find(names, name) - names.begin();
      std::vector<typename P::Compute> values;
      for (std::int64_t i = 0; i < entry.weight.elements(); ++i)
        values.push_back(static_cast<typename P::Compute>(testing::golden_weight(number, name, i)));
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
};

}  // namespace trireme::model
