#include <trireme/architecture/ends.hpp>
#include <trireme/base/check.hpp>
#include <trireme/deck/checks.hpp>
#include <trireme/deck/parallel_checks.hpp>
#include <trireme/plan/program.hpp>
#include <trireme/plan/ranks.hpp>
#include <trireme/plan/recompute.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plan/deck_with.hpp"

namespace trireme::plan {
namespace {

const std::string automatic = "[parallel]\nrecompute = \"auto\"";

deck::Deck resolved(const std::string& keys, const Machine& machine) {
  deck::Deck deck = testing::deck_with(keys);
  deck::resolve_parallel(deck, 1);
  resolve_recompute(deck, machine);
  return deck;
}

std::string recompute_error(const std::string& keys, const Machine& machine) {
  try {
    resolved(keys, machine);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "no error";
}

Machine machine_with(DeviceKind kind, Bytes memory) {
  Machine machine;
  machine.file = "m.toml";
  machine.set_kind(kind);
  machine.device.memory = memory;
  return machine;
}

RankPlan plan_of(const deck::Deck& deck, const Machine& machine) {
  const deck::Config& c = deck.config;
  return plan_ranks(c, architecture::describe(c.model), training_needs(step_programs(c, machine)),
                    machine)
      .front();
}

/// The rank's plan if nothing is computed again.
RankPlan largest_plan(DeviceKind kind) {
  const Machine machine = machine_with(kind, 0);
  return plan_of(resolved("[parallel]\nrecompute = \"none\"", machine), machine);
}

TEST(Recompute, AutomaticNeedsAMemoryLimit) {
  EXPECT_EQ(recompute_error(automatic, Machine{}),
            "[parallel] recompute = \"auto\" (a.toml:17) needs memory_limit; give the bytes that a "
            "rank may use, such as memory_limit = 75_000_000_000");
}

TEST(Recompute, UsesTheMachinesMemoryWithoutALimitInTheDeck) {
  const Bytes most = device_total(largest_plan(DeviceKind::cuda).memory);
  EXPECT_TRUE(
      resolved(automatic, machine_with(DeviceKind::cuda, most)).config.parallel.recomputed.empty());
  const Machine smaller = machine_with(DeviceKind::cuda, most - 1);
  const deck::Deck deck = resolved(automatic, smaller);
  EXPECT_FALSE(deck.config.parallel.recomputed.empty());
  EXPECT_LE(device_total(plan_of(deck, smaller).memory), most - 1);
  EXPECT_EQ(recompute_error(automatic, machine_with(DeviceKind::cuda, 1))
                .find("[device] memory in m.toml (1 B) is too small: a rank needs "),
            0u);
}

TEST(Recompute, HostMemoryIncludesTheProcess) {
  const Bytes most = largest_plan(DeviceKind::host).peak();
  EXPECT_TRUE(
      resolved(automatic, machine_with(DeviceKind::host, most)).config.parallel.recomputed.empty());
  const Machine smaller = machine_with(DeviceKind::host, most - 1);
  const deck::Deck deck = resolved(automatic, smaller);
  EXPECT_FALSE(deck.config.parallel.recomputed.empty());
  EXPECT_LE(plan_of(deck, smaller).peak(), most - 1);
}

TEST(Recompute, TheDecksLimitOverridesTheMachines) {
  const std::string one_byte = automatic + "\nmemory_limit = 1";
  EXPECT_EQ(recompute_error(one_byte, machine_with(DeviceKind::cuda, Bytes{1} << 40))
                .find("[parallel] memory_limit = 1 (a.toml:18) (1 B) is too small: "),
            0u);
  const Bytes most = device_total(largest_plan(DeviceKind::cuda).memory);
  const std::string enough = automatic + "\nmemory_limit = " + std::to_string(most);
  EXPECT_TRUE(resolved(enough, machine_with(DeviceKind::cuda, most - 1))
                  .config.parallel.recomputed.empty());
}

TEST(Recompute, AcceptsALimitWithAUnit) {
  const auto limit = [](const std::string& written) {
    return testing::deck_with("", {"parallel.memory_limit=" + written})
        .config.parallel.memory_limit;
  };
  EXPECT_EQ(testing::deck_with("[parallel]\nmemory_limit = \"75 GB\"").config.parallel.memory_limit,
            75'000'000'000);
  EXPECT_EQ(limit("75 GB"), 75'000'000'000);
  EXPECT_EQ(limit("75e9"), 75'000'000'000);
  EXPECT_EQ(limit("75_000_000_000"), 75'000'000'000);
  EXPECT_THROW(limit("-1"), UsageError);
  EXPECT_THROW(limit("75_GB"), UsageError);
}

/// With gpipe, slots keep the gradient of all logits; a limit can ask for them again.
TEST(Recompute, GpipeMayRecomputeLogits) {
  const auto bytes_with = [](const std::string& recompute, Bytes limit, deck::Deck* chosen) {
    deck::Deck deck = testing::deck_with(
        "[parallel]\nschedule = \"gpipe\"\npipeline = 2\nrecompute = \"" + recompute + "\"" +
        (limit > 0 ? "\nmemory_limit = " + std::to_string(limit) : ""));
    deck::resolve_parallel(deck, 2);
    const Machine machine = machine_with(DeviceKind::cuda, 0);
    resolve_recompute(deck, machine);
    const deck::Config& c = deck.config;
    const auto ranks = plan_ranks(c, architecture::describe(c.model),
                                  training_needs(step_programs(c, machine)), machine);
    if (chosen != nullptr) *chosen = deck;
    return device_total(most_memory(ranks).memory);
  };
  const Bytes least = bytes_with("full", 0, nullptr);
  ASSERT_LT(least, bytes_with("none", 0, nullptr));
  deck::Deck chosen = testing::deck_with("");
  EXPECT_LE(bytes_with("auto", least, &chosen), least);
  const auto& parallel = chosen.config.parallel;
  EXPECT_EQ(architecture::head_gradient(parallel), architecture::HeadGradient::again);
  const auto a = architecture::describe(chosen.config.model);
  EXPECT_TRUE(recomputed_text(parallel, a).ends_with("logits"));
}

}  // namespace
}  // namespace trireme::plan
