// The search for a program, over a grid of pipelines, micro-batches, costs and memory.
#include <trireme/base/text.hpp>
#include <trireme/schedule/list_schedule.hpp>
#include <trireme/schedule/search.hpp>

#include "schedule/support.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

namespace trireme::schedule {
namespace {

struct Costs {
  const char* name;
  /// Time of an instruction; `stages` is the number of all stages.
  std::function<Seconds(const Instr&, int stages)> of;
};

Seconds with_transfers(const Instr& i, Seconds pass) {
  return is_receive(i.op) ? 0.25 : pass;
}

const std::vector<Costs> all_costs{
    {"equal stages", [](const Instr& i, int) { return unit_cost(i); }},
    {"messages", [](const Instr& i, int) { return with_transfers(i, unit_cost(i)); }},
    {"a long last stage",
     [](const Instr& i, int stages) {
       const bool longer = i.stage == stages - 1 && i.op == Op::forward;
       return with_transfers(i, (longer ? 2.5 : 1) * unit_cost(i));
     }},
    {"a long stage in the middle",
     [](const Instr& i, int stages) { return (i.stage == stages / 2 ? 1.5 : 1) * unit_cost(i); }},
    {"recomputation",
     [](const Instr& i, int) {
       if (i.op == Op::backward) return 3.0;
       if (i.op == Op::backward_input || i.op == Op::backward_weight) return 1.9;
       return unit_cost(i);
     }},
};

std::vector<ScheduleKind> named(const ProgramLayout& layout) {
  using enum ScheduleKind;
  if (layout.placement == StagePlacement::v) return {zb_v, v_half, v_min, dualpipe_v};
  if (layout.chunks > 1) return {interleaved};
  return {gpipe, one_forward_one_backward, zb_h1};
}

Seconds end_of(const Timeline& timeline) {
  Seconds end = 0;
  for (const Event& e : timeline.events) end = std::max(end, e.end);
  return end;
}

bool fits(const Program& program, std::span<const int> slots) {
  for (Rank r = 0; r < program.layout.ranks; ++r)
    if (slots_needed(program, r) > slots[static_cast<std::size_t>(r)]) return false;
  return true;
}

std::vector<ProgramLayout> searched_layouts() {
  std::vector<ProgramLayout> all;
  for (const auto& [p, m] : {std::pair{1, 3}, {2, 1}, {2, 8}, {3, 7}, {4, 4}, {4, 13}, {8, 16}})
    for (const ProgramLayout& layout :
         {ProgramLayout{p, m, 1}, ProgramLayout{p, m, 2}, v_layout(p, m, 2)})
      all.push_back(layout);
  return all;
}

TEST(SearchProgram, IsAtLeastAsFastAsNamedSchedules) {
  int cases = 0, better = 0;
  for (const ProgramLayout& layout : searched_layouts())
    for (const Costs& costs : all_costs)
      for (const int per_chunk : {1, layout.ranks, 2 * layout.ranks}) {
        const Cost cost = [&](const Instr& i) { return costs.of(i, layout.stages()); };
        const Transport transport = transports[static_cast<std::size_t>(++cases) % 2];
        const LowerOptions lowering{cases % 3 == 0, transport};
        const std::vector<int> slots(static_cast<std::size_t>(layout.ranks),
                                     per_chunk * layout.chunks);
        SCOPED_TRACE(text(layout.ranks, " ranks, ", layout.micro_batches, " micro-batches, ",
                          layout.chunks, " chunks, ", slots.front(), " slots, ", costs.name, ", ",
                          name_of(transport)));
        const FoundProgram found = search_program(layout, cost, slots, lowering);
        EXPECT_EQ(validate(found.program, transport), std::vector<std::string>{});
        EXPECT_TRUE(fits(found.program, slots));
        EXPECT_EQ(found.seconds, end_of(simulate(found.program, cost).timeline));
        Seconds best = 1e300;
        for (const ScheduleKind kind : named(layout)) {
          const Program program = lowered(kind, layout, lowering);
          if (fits(program, slots)) best = std::min(best, end_of(simulate(program, cost).timeline));
        }
        EXPECT_LE(found.seconds, best * (1 + 1e-9));
        if (found.seconds < 0.99 * best && best < 1e300) ++better;
      }
  EXPECT_GE(cases, 300);
  EXPECT_GE(better, 60) << "of " << cases;
}

/// With two micro-batches saved per stage and rank, equal stages wait only for the first one.
TEST(SearchProgram, FillsThePipelineIfMemoryAllows) {
  for (const int p : {2, 4, 8}) {
    const ProgramLayout layout{p, 4 * p, 1};
    const std::vector<int> slots(static_cast<std::size_t>(p), 2 * p);
    const FoundProgram found = search_program(layout, unit_cost, slots, {});
    const Timeline timeline = simulate(found.program, unit_cost).timeline;
    EXPECT_DOUBLE_EQ(timeline.span(), 3.0 * layout.micro_batches + p - 1) << p;
  }
}

TEST(SearchProgram, IsDeterministic) {
  const ProgramLayout layout{4, 10, 1};
  const Cost cost = [](const Instr& i) { return all_costs[2].of(i, 4); };
  const std::vector<int> slots{5, 4, 4, 3};
  const FoundProgram first = search_program(layout, cost, slots, {});
  const FoundProgram second = search_program(layout, cost, slots, {});
  EXPECT_EQ(first.program, second.program);
  EXPECT_EQ(first.origin, second.origin);
}

/// A list's own time is that of its program when it is simulated.
TEST(ListSchedule, TimeMatchesItsProgram) {
  for (const ProgramLayout& layout : searched_layouts())
    for (const Costs& costs : all_costs) {
      const Cost cost = [&](const Instr& i) { return costs.of(i, layout.stages()); };
      const ListRule rule{
          true, false,
          true, false,
          0.5,  std::vector<int>(static_cast<std::size_t>(layout.ranks), 2 * layout.chunks)};
      const ListSchedule list = list_schedule(layout, stage_costs(layout, cost), rule);
      Program program = list.program;
      lower(program, {});
      const Simulation simulation = simulate(program, cost, {std::nullopt, layout.micro_batches});
      ASSERT_EQ(simulation.mistakes, std::vector<std::string>{});
      EXPECT_NEAR(end_of(simulation.timeline), list.seconds, 1e-9 * list.seconds);
    }
}

}  // namespace
}  // namespace trireme::schedule
