#pragma once

#include "support/training.hpp"
#include "support/whole_arrays.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace trireme::train {

/// Losses, norms and all arrays of a run, known on rank 0.
using Bits = std::pair<testing::Trace, std::map<std::string, std::vector<double>>>;

/// Expects that six steps have the same bits in all schedules, numbers of stages and choices of
/// recomputation, with two replicas also with divided state. Runs on the first ranks.
/// `config_of(overrides, ranks)` is the run's deck. Returns the bits.
template <class ConfigOf>
Bits expect_kept_bits(const data::TokenFile& tokens, const ConfigOf& config_of) {
  using namespace testing;
  const int ranks = runtime().ranks();
  const int data = ranks % 2 == 0 ? 2 : 1;
  const auto run = [&](int pipeline, std::vector<std::string> overrides) {
    const int used = data * pipeline;
    const auto part =
        runtime().world().split(runtime().rank() < used ? 0 : 1, runtime().rank(), "some ranks");
    if (runtime().rank() >= used) return Bits{};
    overrides.push_back(text("parallel.pipeline=", pipeline));
    Rig rig(config_of(overrides, used), tokens, *part);
    const Trace trace = rig.run(1, 6);
    Bits bits{trace, whole_arrays(*rig.engine, *part)};
    return runtime().rank() == 0 ? bits : Bits{};
  };
  const Bits expected = run(1, {});
  EXPECT_EQ(run(1, {"parallel.shard=optimizer", "parallel.recompute=full"}), expected);
  EXPECT_EQ(run(1, {"parallel.recompute=selective"}), expected);
  if (ranks >= 2 * data) {
    EXPECT_EQ(run(2, {"parallel.schedule=zb-h1", "parallel.shard=optimizer"}), expected);
    EXPECT_EQ(run(2, {"parallel.schedule=gpipe", "parallel.recompute=full"}), expected);
  }
  return expected;
}

}  // namespace trireme::train
