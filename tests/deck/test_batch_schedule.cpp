#include <trireme/deck/batch_schedule.hpp>
#include <trireme/deck/parallel_checks.hpp>

#include <gtest/gtest.h>

#include "deck/example.hpp"

namespace trireme::deck {
namespace {

BatchConfig ramp(std::int64_t start, std::int64_t increment, std::int64_t samples,
                 std::int64_t global) {
  return {global, 1, start, increment, samples};
}

/// The rule of BatchSchedule, step by step.
TEST(BatchSchedule, FollowsTheRuleStepByStep) {
  for (const BatchConfig& b :
       {ramp(4, 2, 100, 12), ramp(1, 1, 17, 9), ramp(3, 3, 1, 300), ramp(2, 5, 1000, 502),
        ramp(8, 8, 8, 16), ramp(5, 1, 3, 9), ramp(16, 16, 1 << 20, 1536)}) {
    const BatchSchedule batches(b);
    const std::int64_t n = (b.global - b.ramp_start) / b.ramp_increment;
    std::int64_t x = 0;
    for (std::int64_t step = 1; step <= 3000; ++step) {
      const std::int64_t expected =
          x >= b.ramp_samples ? b.global : b.ramp_start + x * n / b.ramp_samples * b.ramp_increment;
      ASSERT_EQ(batches.samples(step - 1), x) << "before step " << step;
      ASSERT_EQ(batches.global(step), expected) << "step " << step;
      x += expected;
    }
    EXPECT_EQ(batches.phases().front().global, b.ramp_start);
    EXPECT_EQ(batches.phases().back().global, b.global);
  }
}

/// Megatron-LM's own example: from 16 by 8 to 1024 over 300,000 samples, so that each of the 126
/// increments is meant for 300,000 / 126 samples.
TEST(BatchSchedule, GrowsOverEqualNumbersOfSamples) {
  const BatchSchedule batches(ramp(16, 8, 300000, 1024));
  ASSERT_EQ(batches.phases().size(), 127u);
  for (std::size_t k = 0; k < batches.phases().size(); ++k) {
    const BatchPhase& phase = batches.phases()[k];
    EXPECT_EQ(phase.global, 16 + 8 * static_cast<std::int64_t>(k));
    const double meant = 300000.0 / 126 * static_cast<double>(k);
    EXPECT_GE(static_cast<double>(phase.first_sample), meant);
    EXPECT_LT(static_cast<double>(phase.first_sample), meant + static_cast<double>(phase.global));
  }
}

TEST(BatchSchedule, LargeStepsSkipSizes) {
  const BatchSchedule batches(ramp(4, 1, 6, 10));  // a size for each sample
  const std::vector<BatchPhase> expected{{1, 0, 4}, {2, 4, 8}, {3, 12, 10}};
  EXPECT_EQ(batches.phases(), expected);
}

TEST(BatchSchedule, IsConstantWithoutARamp) {
  const std::vector<BatchPhase> expected{{1, 0, 12}};
  EXPECT_EQ(BatchSchedule({12, 2}).phases(), expected);
  EXPECT_EQ(BatchSchedule(ramp(12, 0, 0, 12)).phases(), expected);
  EXPECT_EQ(BatchSchedule({12, 2}).samples(1'000'000'000), 12'000'000'000);
  EXPECT_EQ(BatchSchedule({12, 2}).samples(0), 0);
}

const std::vector<std::string> good{"batch.ramp_start=4", "batch.ramp_increment=4",
                                    "batch.ramp_samples=40"};

std::vector<std::string> with(std::vector<std::string> overrides, const std::string& another) {
  overrides.push_back(another);
  return overrides;
}

TEST(RampCheck, RequiresAllKeysOfARampUp) {
  parse_deck(example, "a.toml", good);
  parse_deck(example, "a.toml", {"batch.ramp_start=12"});  // no ramp-up
  expect_contains(
      mistakes_of(example, {"batch.ramp_increment=4"}),
      "[batch] ramp_increment = 4 (command line) has no effect without a ramp-up, but "
      "the deck has [batch] ramp_start = 0 (default); choose a ramp_start of 1 or more, "
      "or remove ramp_increment");
  expect_contains(mistakes_of(example, {"batch.ramp_start=14"}),
                  "[batch] ramp_start = 14 (command line) is larger than [batch] global = 12 "
                  "(a.toml:7); choose a ramp_start of at most 12");
  expect_contains(mistakes_of(example, {"batch.ramp_start=4"}),
                  "needs [batch] ramp_increment = 0 (default) to be 1 or more");
  expect_contains(mistakes_of(example, {"batch.ramp_start=4", "batch.ramp_increment=4"}),
                  "needs [batch] ramp_samples = 0 (default) to be 1 or more");
  expect_contains(mistakes_of(example, with(good, "batch.ramp_increment=3")),
                  "[batch] ramp_increment = 3 (command line) does not divide the 8 samples between "
                  "[batch] ramp_start = 4 (command line) and [batch] global = 12 (a.toml:7); "
                  "choose a ramp_increment of 1, 2, 4 or 8");
  expect_contains(mistakes_of(example, {"batch.global=4000", "batch.ramp_start=2",
                                        "batch.ramp_increment=2", "batch.ramp_samples=9"}),
                  "gives 2000 sizes from [batch] ramp_start = 2 (command line) to [batch] global = "
                  "4000 (command line), more than 1024; choose a ramp_increment of at least 4");
}

TEST(RampCheck, MicroMustDivideEverySize) {
  const std::string message = mistakes_of(
      example, {"batch.ramp_start=3", "batch.ramp_increment=3", "batch.ramp_samples=9"});
  EXPECT_EQ(message.find("mistakes"), std::string::npos) << "one is enough: " << message;
  expect_contains(message,
                  "[batch] ramp_start = 3 (command line) is not a multiple of [batch] micro = 2 "
                  "(a.toml:8); choose a ramp_start of 6 or 12, or a micro of 1 or 3");
  expect_contains(
      mistakes_of(example, with(good, "batch.ramp_increment=1")),
      "the global batch of 5 samples, [batch] ramp_start = 4 (command line) + [batch] "
      "ramp_increment = 1 (command line), is not a multiple of [batch] micro = 2 (a.toml:8); "
      "choose a ramp_increment of 2, 4 or 8, or a micro of 1");
}

TEST(RampCheck, RejectsAProgramFileWithARampUp) {
  auto overrides = with(with(good, "parallel.schedule=file"), "parallel.program=a.txt");
  expect_contains(
      mistakes_of(example, overrides),
      "[parallel] schedule = \"file\" (command line) runs one program for one size of the "
      "global batch, but the deck has [batch] ramp_start = 4 (command line); remove "
      "ramp_start");
  overrides.emplace_back("batch.ramp_start=12");
  parse_deck(example, "a.toml", overrides);
}

TEST(ResolveParallel, MicroTimesDataMustDivideEverySize) {
  Deck deck = parse_deck(example, "a.toml", good);
  resolve_parallel(deck, 2);
  expect_contains(resolve_refusal(3, good),
                  "[batch] ramp_start = 4 (command line) is not a multiple of [batch] micro = 2 "
                  "(a.toml:8) · [parallel] data = 3 (from the number of ranks) = 6; choose a "
                  "ramp_start of 12, or data of 1 or 2");
  expect_contains(
      resolve_refusal(2, {"batch.global=16", "batch.ramp_start=4", "batch.ramp_increment=6",
                          "batch.ramp_samples=9"}),
      "the global batch of 10 samples, [batch] ramp_start = 4 (command line) + [batch] "
      "ramp_increment = 6 (command line), is not a multiple of [batch] micro = 2 (a.toml:8) · "
      "[parallel] data = 2 (from the number of ranks) = 4; choose a ramp_increment of 4 or 12, or "
      "data of 1");
}

TEST(ResolveParallel, BoundsTheProgramsOfAllSizes) {
  expect_contains(resolve_refusal(1024, {"batch.micro=1", "batch.global=2048", "batch.ramp_start=4",
                                         "batch.ramp_increment=2", "batch.ramp_samples=10000000",
                                         "parallel.pipeline=1024"}),
                  "[batch] ramp_increment = 2 (command line): the programs of all sizes of the "
                  "global batch have ");
}

}  // namespace
}  // namespace trireme::deck
