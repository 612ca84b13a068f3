#include <trireme/base/check.hpp>
#include <trireme/schedule/overlap.hpp>

#include "support.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>

/// 2bw: steps without a flush.
namespace trireme::schedule {
namespace {

std::vector<ProgramLayout> overlapped_layouts() {
  std::vector<ProgramLayout> all;
  for (int p = 1; p <= 8; ++p)
    for (const int m : {p, p + 1, p + 3, 2 * p + 3, 5 * p}) all.push_back({p, m});
  return all;
}

Program overlapped(const ProgramLayout& layout, const LowerOptions& options,
                   int steps = overlapped_steps) {
  return lowered(generate_overlapped(layout, steps), options);
}

/// The instructions of a rank's step, numbered from it.
std::vector<Instr> part(const Program& program, Rank rank, int step) {
  const std::span<const Instr> row = program.ranks.at(static_cast<std::size_t>(rank));
  const auto ends = ends_of_steps(row, program.layout);
  const std::size_t begin = step == 0 ? 0 : ends.at(static_cast<std::size_t>(step - 1));
  std::vector<Instr> found;
  for (std::size_t i = begin; i < ends.at(static_cast<std::size_t>(step)); ++i)
    found.push_back(seen_from(row[i], step, program.layout));
  return found;
}

TEST(Overlap, RepeatedStepIsValidAndNeverIdle) {
  for (const ProgramLayout& layout : overlapped_layouts())
    for (const Transport transport : transports)
      for (const bool tied : {false, true}) {
        SCOPED_TRACE(text("p ", layout.ranks, ", m ", layout.micro_batches, ", ",
                          name_of(transport), tied ? ", tied" : ""));
        const Program program = overlapped(layout, {tied, transport});
        const auto mistakes = validate(program);
        EXPECT_TRUE(mistakes.empty()) << mistakes.front();
        const Timeline timeline = simulate(program, unit_cost).timeline;
        EXPECT_EQ(steady_step(timeline).seconds, 3.0 * layout.micro_batches);
        EXPECT_EQ(timeline.idle_share(), 0.0);
      }
}

/// The largest stage is busy all the time, whatever the costs of the passes, if there are three
/// micro-batches more than ranks; if backward passes take twice as long as forward passes, always.
TEST(Overlap, TheLongestStageIsNeverIdle) {
  for (const double backward : {1.5, 2.0, 3.0})
    for (const ProgramLayout& layout : overlapped_layouts()) {
      if (backward != 2 && layout.micro_batches < layout.ranks + 3) continue;
      const Program program = overlapped(layout, {true});
      const auto cost = [&](const Instr& i) {
        if (!is_compute(i.op)) return 0.0;
        return (i.stage == 0 ? 1.25 : 1.0) * (i.op == Op::forward ? 1.0 : backward);
      };
      const SteadyStep step = steady_step(simulate(program, cost).timeline);
      EXPECT_NEAR(step.seconds, 1.25 * (1 + backward) * layout.micro_batches,
                  1e-9 * layout.micro_batches)
          << layout.ranks << " ranks, " << layout.micro_batches << ", backward " << backward;
    }
}

/// A run of any length is the first step, the second one any number of times, and the last one.
TEST(Overlap, InnerStepsAreEqual) {
  for (const ProgramLayout& layout : overlapped_layouts())
    for (const Transport transport : transports) {
      const Program three = overlapped(layout, {true, transport});
      const Program five = overlapped(layout, {true, transport}, 5);
      const auto mistakes = validate(five);
      EXPECT_TRUE(mistakes.empty()) << mistakes.front();
      for (Rank r = 0; r < layout.ranks; ++r) {
        EXPECT_EQ(part(five, r, 0), part(three, r, 0)) << r << " of " << layout.ranks;
        for (const int step : {1, 2, 3}) EXPECT_EQ(part(five, r, step), part(three, r, 1));
        EXPECT_EQ(part(five, r, 4), part(three, r, 2));
      }
    }
}

TEST(Overlap, NeedsAsManySlotsAs1f1b) {
  for (const ProgramLayout& layout : overlapped_layouts()) {
    const std::vector<Needs> all = needs(overlapped(layout, {true}));
    for (Rank r = 0; r < layout.ranks; ++r) {
      EXPECT_EQ(all[static_cast<std::size_t>(r)].slots, layout.ranks - r);
      EXPECT_EQ(expected_needs(ScheduleKind::two_bw, layout, r).slots, layout.ranks - r);
    }
  }
}

/// Moves the first instruction of this kind and step to another place of the row.
void move(std::vector<Instr>& row, const Instr& what, std::size_t to) {
  const auto from = std::ranges::find(row, what);
  ASSERT_NE(from, row.end()) << what;
  row.erase(from);
  row.insert(row.begin() + static_cast<std::ptrdiff_t>(to), what);
}

TEST(Overlap, DetectsLateWeightsAndMissingReductions) {
  const Program good = overlapped({3, 5}, {true});
  Program late = good;
  const auto& row = late.ranks[1];
  const auto first = std::ranges::find(row, Instr{Op::forward, 1, 10}) - row.begin();
  move(late.ranks[1], {Op::optimizer_step, 1, 0}, static_cast<std::size_t>(first));
  std::string mistakes = validate(late).front();
  EXPECT_NE(mistakes.find("forward stage 1 micro 10: needs the updated weights of stage 1"),
            std::string::npos)
      << mistakes;
  Program never = good;
  std::erase(never.ranks[2], Instr{Op::begin_norm, 2, 1});
  mistakes = validate(never).front();
  EXPECT_NE(mistakes.find("needs the begin of the gradient norm on rank 2"), std::string::npos)
      << mistakes;
  Program alone = lowered(one_f_one_b, {2, 4});
  alone.ranks[0].push_back({Op::begin_norm, 0, 0});
  EXPECT_NE(validate(alone).front().find("only one step"), std::string::npos);
}

TEST(Overlap, RejectsFewerMicroBatchesThanRanks) {
  const ProgramLayout few{4, 3}, chunks{2, 4, 2};
  EXPECT_THROW(generate_overlapped(few), Error);
  EXPECT_THROW(generate_overlapped(chunks), Error);
}

TEST(Overlap, ASingleStepIs1f1b) {
  const ProgramLayout layout{3, 5};
  for (const Transport transport : transports)
    EXPECT_EQ(single_step(overlapped(layout, {true, transport})),
              lowered(one_f_one_b, layout, {true, transport}));
}

TEST(Overlap, TimelinesReadBackWithTheirSteps) {
  const Timeline timeline = simulate(overlapped({2, 3}, {true}), unit_cost).timeline;
  Timeline again = read_timeline(write_timeline(timeline), "timeline.jsonl");
  EXPECT_EQ(again, timeline);
}

}  // namespace
}  // namespace trireme::schedule
