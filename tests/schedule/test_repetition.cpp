#include <trireme/schedule/repetition.hpp>

#include "schedule/support.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

namespace trireme::schedule {
namespace {

/// End of each rank's last pass in a simulation with ample send buffers.
std::vector<Seconds> simulated_ends(const Program& program, const Cost& cost) {
  std::vector<Seconds> ends(program.ranks.size(), 0);
  const int buffers = program.layout.passes();
  for (const Event& e : simulate(program, cost, {{}, std::max(2, buffers)}).timeline.events)
    if (is_pass(e.instr.op)) {
      Seconds& end = ends[static_cast<std::size_t>(e.rank)];
      end = std::max(end, e.end);
    }
  return ends;
}

/// Durations that differ between stages, and messages that are waited for.
Cost random_cost(const ProgramLayout& layout, std::mt19937& random) {
  std::uniform_real_distribution<double> share(0, 1);
  std::vector<std::array<double, ops>> times(static_cast<std::size_t>(layout.stages()));
  const bool waits = share(random) < 0.5;
  for (auto& stage : times)
    for (std::size_t op = 0; op < stage.size(); ++op) {
      const bool send = is_send(static_cast<Op>(op));
      stage[op] = is_transfer(static_cast<Op>(op)) ? 0.1 * share(random) : 1 + 0.3 * share(random);
      if (send && !waits) stage[op] = 0;
    }
  return [times](const Instr& i) {
    if (!is_pass(i.op) && !is_transfer(i.op)) return 0.0;
    return times[static_cast<std::size_t>(i.stage)][static_cast<std::size_t>(i.op)];
  };
}

TEST(Repetition, PassesEndAsInTheSimulation) {
  std::mt19937 random(3);
  for (const Case& c : cases(5, 11, 3)) {
    const Program program = generate(c.kind, c.layout);
    const Cost cost = random_cost(c.layout, random);
    const std::vector<Seconds> found = PassOrder(program).times(cost).end;
    const std::vector<Seconds> expected = simulated_ends(lowered(program), cost);
    for (std::size_t r = 0; r < found.size(); ++r)
      EXPECT_NEAR(found[r], expected[r], 1e-9 * expected[r]) << c << " rank " << r;
  }
}

TEST(Repetition, LongStepsRepeatEqualPasses) {
  for (const Case& c : cases(6, 1, 3))
    for (const int m : {4, 23, 24, 25, 31, 60}) {
      Case longer = c;
      longer.layout.micro_batches = m;
      const Program program = generate(longer.kind, longer.layout);
      const std::vector<Seconds> found = RepeatedPasses(longer.kind, longer.layout).ends(unit_cost);
      const std::vector<Seconds> expected = PassOrder(program).times(unit_cost).end;
      EXPECT_NEAR(std::ranges::max(found), std::ranges::max(expected), 1e-9) << longer;
      const std::vector<RowCounts>& counts = row_counts(longer.kind, longer.layout);
      for (std::size_t r = 0; r < program.ranks.size(); ++r) {
        const RowCounts exact = count_row(program.ranks[r]);
        EXPECT_EQ(counts[r].slots, exact.slots) << longer << " rank " << r;
        EXPECT_EQ(counts[r].forward_again, exact.forward_again) << longer << " rank " << r;
        EXPECT_EQ(counts[r].backward_again, exact.backward_again) << longer << " rank " << r;
      }
    }
}

TEST(Repetition, LongStepsOfUnequalStagesAreClose) {
  std::mt19937 random(5);
  for (const Case& c : cases(6, 1, 3)) {
    Case longer = c;
    longer.layout.micro_batches = 61;
    const Cost cost = random_cost(longer.layout, random);
    const Seconds found = std::ranges::max(RepeatedPasses(longer.kind, longer.layout).ends(cost));
    const Seconds expected =
        std::ranges::max(PassOrder(generate(longer.kind, longer.layout)).times(cost).end);
    EXPECT_NEAR(found, expected, 0.02 * expected) << longer;
  }
}

TEST(Repetition, OverlappedStepsTakeTheTimeOfTheRepeatedStep) {
  for (int p = 1; p <= 5; ++p)
    for (const int m : {p, 2 * p + 1, 9 * p + 2}) {
      const ProgramLayout layout{p, m};
      for (const Seconds end : RepeatedPasses(ScheduleKind::two_bw, layout).ends(unit_cost))
        EXPECT_NEAR(end, 3.0 * m, 1e-9) << p << " " << m;
    }
}

}  // namespace
}  // namespace trireme::schedule
