// schedule = "auto": memory limits, and times from FLOPs, machine files and timelines.
#include <trireme/base/check.hpp>
#include <trireme/deck/checks.hpp>
#include <trireme/deck/parallel_checks.hpp>
#include <trireme/plan/program.hpp>
#include <trireme/plan/ranks.hpp>
#include <trireme/plan/search.hpp>
#include <trireme/schedule/machine.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "plan/deck_with.hpp"
#include "support/messages.hpp"
#include "support/temporary_folder.hpp"

namespace trireme::plan {
namespace {

using testing::expect_contains;

constexpr int pipeline_ranks = 4;

deck::Config config_with(std::vector<std::string> overrides) {
  for (const char* set : {"parallel.pipeline=4", "parallel.schedule=auto", "model.layers=8",
                          "batch.global=96", "batch.micro=8"})
    overrides.insert(overrides.begin(), set);
  deck::Deck deck = testing::deck_with("", overrides);
  deck::resolve_parallel(deck, pipeline_ranks);
  return deck.config;
}

Bytes most_array_bytes(const deck::Config& config, const schedule::Program& program) {
  KnownParts known;
  return most_bytes(config, architecture::describe(config.model), training_needs({&program, 1}),
                    Machine{}, true, known);
}

schedule::ProgramLayout layout_of(const deck::Config& config) {
  schedule::ProgramLayout layout{pipeline_ranks, 12, static_cast<int>(config.parallel.chunks)};
  layout.placement = config.parallel.stage_map().placement;
  return layout;
}

schedule::FoundProgram found(const std::vector<std::string>& overrides) {
  const deck::Config config = config_with(overrides);
  return fastest_program(config, layout_of(config), Machine{});
}

std::string search_error(const std::vector<std::string>& overrides) {
  try {
    found(overrides);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "no error";
}

TEST(ProgramSearch, UsesTheMemoryLimitOnEveryRank) {
  for (const char* chunks : {"parallel.chunks=1", "parallel.chunks=2"}) {
    const deck::Config open = config_with({chunks});
    const schedule::FoundProgram unlimited = fastest_program(open, layout_of(open), Machine{});
    const Bytes most = most_array_bytes(open, unlimited.program);
    Seconds before = unlimited.seconds;
    for (const int percent : {90, 70, 50}) {
      const Bytes limit = most * percent / 100;
      const deck::Config config = config_with({chunks, text("parallel.memory_limit=", limit)});
      const schedule::FoundProgram limited = fastest_program(config, layout_of(config), Machine{});
      EXPECT_LE(most_array_bytes(config, limited.program), limit) << chunks << " " << percent;
      EXPECT_GE(limited.seconds, before * (1 - 1e-9)) << "less memory takes no less time";
      before = limited.seconds;
    }
    EXPECT_GT(before, unlimited.seconds);
  }
}

TEST(ProgramSearch, RejectsALimitBelowOneMicroBatch) {
  expect_contains(
      search_error({"parallel.memory_limit=1000"}),
      "schedule = \"auto\" finds no program within the 1000 B per rank of [parallel] memory_limit");
  expect_contains(search_error({"parallel.memory_limit=1000"}), "choose a smaller batch.micro");
}

TEST(ProgramSearch, UsesTheTimesOfATimeline) {
  const testing::TemporaryFolder folder;
  const std::string file = folder.file("timeline.jsonl");
  const schedule::Program measured = step_program(config_with({}), Machine{});
  // As if measured: the second stage is three times as slow as the others.
  const auto slow = [](const schedule::Instr& i) {
    return (i.stage == 1 ? 3 : 1) * schedule::unit_cost(i);
  };
  std::ofstream(file) << schedule::write_timeline(schedule::simulate(measured, slow).timeline);
  const schedule::FoundProgram by_times = found({text("parallel.timeline=", file)});
  EXPECT_GE(by_times.seconds, 3 * 3 * 12) << "the slow stage's passes";
  EXPECT_LE(by_times.seconds, 3 * 3 * 12 + 12);
  expect_contains(search_error({text("parallel.timeline=", file), "parallel.chunks=2"}),
                  "was measured with 4 pipeline ranks and 1 chunks, but the deck has 4 and 2");
  expect_contains(search_error({"parallel.timeline=none.jsonl"}),
                  "[parallel] timeline = \"none.jsonl\": no such file");
}

/// Halves of a whole backward pass that was measured have the shares of their FLOPs.
TEST(ProgramSearch, SplitsMeasuredBackwardPasses) {
  const testing::TemporaryFolder folder;
  const std::string file = folder.file("timeline.jsonl");
  const schedule::Program measured =
      step_program(config_with({"parallel.schedule=1f1b"}), Machine{});
  std::ofstream(file) << schedule::write_timeline(
      schedule::simulate(measured, schedule::unit_cost).timeline);
  const schedule::FoundProgram by_times = found({text("parallel.timeline=", file)});
  EXPECT_EQ(by_times.origin, "list") << "halves fill the idle time of 1f1b";
  EXPECT_LE(by_times.seconds, 3 * 12 + 3 + 0.5);
}

}  // namespace
}  // namespace trireme::plan
