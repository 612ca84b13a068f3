#include <trireme/base/check.hpp>
#include <trireme/schedule/schedules.hpp>

#include "schedule/support.hpp"
#include "support/words.hpp"

#include <gtest/gtest.h>

namespace trireme::schedule {
namespace {

TEST(Schedules, WordsReadBackToTheirValues) {
  trireme::testing::expect_words_read_back<ScheduleKind>();
  EXPECT_EQ(name_of(ScheduleKind::one_forward_one_backward), "1f1b");
  EXPECT_EQ(name_of(ScheduleKind::dualpipe_v), "dualpipe-v");
}

TEST(Schedules, TraitsHoldForProgramsOfAllSizes) {
  for (const Schedule& schedule : schedules()) {
    if (schedule.generate == nullptr) continue;
    const Traits& traits = traits_of(schedule.kind);
    for (int p = 2; p <= 6; ++p)
      for (const int m : {p, 2 * p, 3 * p + 1}) {
        ProgramLayout layout{p, m, schedule.least_chunks};
        layout.placement = schedule.placement;
        const Program program = generate(schedule.kind, layout);
        SCOPED_TRACE(text(schedule.word, ", ", p, " ranks, ", m, " micro-batches"));
        EXPECT_EQ(program.layout.overlaps_steps(), traits.overlaps_steps);
        bool splits = false, forward_first = true;
        for (const auto& row : program.ranks) {
          bool backward = false;
          for (const Instr& i : row) {
            splits |= i.op == Op::backward_input;
            backward |= i.op != Op::forward;
            forward_first &= !backward || i.op != Op::forward;
          }
        }
        EXPECT_EQ(splits, traits.splits_backward);
        EXPECT_EQ(forward_first, traits.forward_first);
        EXPECT_EQ(!splits && layout.chunks == 1 && !program.layout.overlaps_steps(),
                  traits.is_plain);
      }
  }
}

TEST(Schedules, WordsAreJoined) {
  EXPECT_EQ(schedule_words([](const Schedule& s) { return s.placement == StagePlacement::v; }),
            "zb-v, v-half, v-min and dualpipe-v");
  EXPECT_EQ(schedule_words([](const Schedule& s) { return s.generate == nullptr; }, " or ", "'"),
            "'auto' or 'file'");
  EXPECT_EQ(schedule_words([](const Schedule& s) { return s.least_chunks > 2; }), "");
}

}  // namespace
}  // namespace trireme::schedule
