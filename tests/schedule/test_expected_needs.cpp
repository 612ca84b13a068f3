#include <trireme/base/text.hpp>
#include <trireme/schedule/generate.hpp>
#include <trireme/schedule/lower.hpp>
#include <trireme/schedule/needs.hpp>

#include <gtest/gtest.h>

namespace trireme::schedule {
namespace {

/// Schedules with all numbers of chunks that they can have, up to 4.
struct Kind {
  ScheduleKind schedule;
  int chunks;
};
constexpr Kind kinds[]{{ScheduleKind::gpipe, 1},       {ScheduleKind::one_forward_one_backward, 1},
                       {ScheduleKind::zb_h1, 1},       {ScheduleKind::interleaved, 2},
                       {ScheduleKind::interleaved, 3}, {ScheduleKind::interleaved, 4},
                       {ScheduleKind::zb_v, 2},        {ScheduleKind::v_half, 2},
                       {ScheduleKind::v_min, 2},       {ScheduleKind::dualpipe_v, 2}};

TEST(ExpectedNeeds, MatchThePrograms) {
  for (const Kind kind : kinds)
    for (int ranks = 1; ranks <= 7; ++ranks)
      for (const int micro_batches : {1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 16, 25, 61})
        for (const Transport transport :
             {Transport::independent_channels, Transport::ordered_groups}) {
          ProgramLayout layout{ranks, micro_batches, kind.chunks};
          layout.placement = schedule_of(kind.schedule).placement;
          Program program = generate(kind.schedule, layout);
          lower(program, {true, transport});
          const std::vector<Needs> counted = needs(program);
          for (int r = 0; r < ranks; ++r) {
            const Needs& exact = counted[static_cast<std::size_t>(r)];
            const Needs expected = expected_needs(kind.schedule, program.layout, r);
            SCOPED_TRACE(text(name_of(kind.schedule), " ", kind.chunks, " chunks, rank ", r, " of ",
                              ranks, ", ", micro_batches, " micro-batches, ", name_of(transport)));
            EXPECT_EQ(expected.slots, exact.slots);
            EXPECT_EQ(expected.split_backward, exact.split_backward);
            EXPECT_EQ(expected.send_buffers, exact.send_buffers);
            EXPECT_GE(expected.handed_over, exact.handed_over);
            EXPECT_EQ(expected.handed_over > 0, exact.handed_over > 0);
            // Evaluations may need more activations; no program needs many more than expected.
            EXPECT_GE(expected.received_activations + 4, exact.received_activations);
            EXPECT_GE(expected.received_gradients + 4, exact.received_gradients);
          }
        }
}

}  // namespace
}  // namespace trireme::schedule
