#include <trireme/base/check.hpp>

#include "schedule/support.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace trireme::schedule {
namespace {

TEST(Generate, EveryProgramIsValidUnderBothTransports) {
  int combinations = 0;
  for (const Case& c : cases(8, 18, 4)) {
    ++combinations;
    for (const bool tied : {false, true})
      for (const Transport transport : transports)
        EXPECT_EQ(validate(lowered(c.kind, c.layout, {tied, transport}), transport),
                  std::vector<std::string>{})
            << c << " " << name_of(transport);
  }
  EXPECT_GE(combinations, 500);
}

TEST(Generate, EveryEvaluationIsValidUnderBothTransports) {
  for (int p = 1; p <= 6; ++p)
    for (int m = 1; m <= 9; ++m)
      for (int v = 1; v <= 3; ++v)
        for (const Transport transport : transports) {
          const Program program = lowered(generate_evaluation({p, m, v}), {true, transport});
          EXPECT_EQ(validate(program, transport), std::vector<std::string>{})
              << p << " " << m << " " << v << " " << name_of(transport);
          EXPECT_EQ(slots_needed(program, 0), 0);
          // The last rank ends after p − 1 (arrival of the first micro-batch) plus m v of its own,
          // if rounds are full.
          if (m % p == 0) {
            EXPECT_EQ(simulate(program, unit_cost, {transport}).timeline.span(), p - 1 + m * v);
          }
        }
}

TEST(Generate, VEvaluationsWaitOnlyForTheFirstMicroBatch) {
  for (int p = 1; p <= 6; ++p)
    for (int m = 1; m <= 9; ++m)
      for (int v = 1; v <= 3; ++v)
        for (const Transport transport : transports) {
          const Program program =
              lowered(generate_evaluation(v_layout(p, m, v)), {true, transport});
          EXPECT_EQ(validate(program, transport), std::vector<std::string>{})
              << p << " " << m << " " << v << " " << name_of(transport);
          EXPECT_EQ(lowered(generate_evaluation(program.layout), {program.layout.tied, transport}),
                    program)
              << "from the layout of a lowered program";
          // The last micro-batch starts after v (m − 1) passes of the first rank.
          if (v == 2) {
            EXPECT_EQ(simulate(program, unit_cost, {transport}).timeline.span(), v * (m - 1 + p));
          }
        }
}

TEST(Generate, EveryStageAddsMicroBatchesInOrder) {
  for (const Case& c : cases(4, 9, 3))
    for (const auto& row : generate(c.kind, c.layout).ranks) {
      std::vector<Micro> next(static_cast<std::size_t>(c.layout.stages()), 0);
      for (const Instr& i : row)
        if (i.op == Op::backward || i.op == Op::backward_weight) {
          EXPECT_EQ(i.micro, next[static_cast<std::size_t>(i.stage)]++) << c;
        }
    }
}

TEST(Generate, IdleSharesMatchTheClosedForms) {
  for (int p = 1; p <= 8; ++p)
    for (int m = 1; m <= 24; ++m)
      for (const Transport transport : transports) {
        const auto idle = [&](ScheduleKind kind, int v = 1) {
          const ProgramLayout layout{p, m, v};
          const Program program = lowered(kind, layout, {false, transport});
          return simulate(program, unit_cost, {transport}).timeline.idle_share();
        };
        const double bubble = p - 1;
        // Narayanan et al. 2021, section 2.2: (p − 1) / m of the ideal time.
        EXPECT_DOUBLE_EQ(idle(gpipe), bubble / (m + bubble)) << p << " " << m;
        EXPECT_DOUBLE_EQ(idle(one_f_one_b), bubble / (m + bubble)) << p << " " << m;
        // … and 1/v of it with v chunks, if the rounds of p micro-batches are full.
        for (int v = 2; v <= 4 && m % p == 0; ++v)
          EXPECT_DOUBLE_EQ(idle(interleaved, v), bubble / (v * m + bubble)) << p << " " << m;
        // Qi et al. 2023, section 2.3: (p − 1)(F + B − W) idle and m (F + B + W) busy.
        if (m >= p) {
          EXPECT_DOUBLE_EQ(idle(zb_h1), bubble / (3 * m + bubble)) << p << " " << m;
        }
      }
}

TEST(Generate, VIdleSharesMatchTheClosedForms) {
  for (int p = 2; p <= 12; ++p)
    for (int m = 1; m <= 3 * p; m += m < p ? 1 : 3)
      for (const Transport transport : transports) {
        const auto longer = [&](ScheduleKind kind) {
          const Program program = lowered(kind, v_layout(p, m), {false, transport});
          const Timeline t = simulate(program, unit_cost, {transport}).timeline;
          EXPECT_DOUBLE_EQ(t.idle_share(), (t.span() - 6 * m) / t.span());
          return t.span() - 6 * m;
        };
        SCOPED_TRACE(text(p, " ranks, ", m, " micro-batches, ", name_of(transport)));
        // Qi et al. 2024, section 3.3: idle for the way of one micro-batch, 2/3 of 1f1b's 6 (p −
        // 1).
        EXPECT_EQ(longer(ScheduleKind::v_min), 4 * p - 5);
        if (m < p) continue;
        EXPECT_EQ(longer(ScheduleKind::v_half), 3 * p - 4) << "half of 1f1b's";
        EXPECT_EQ(longer(ScheduleKind::zb_v), p - 1) << "only until the last rank can begin";
        if (m < 2 * p) continue;
        EXPECT_EQ(longer(ScheduleKind::dualpipe_v), p - 1) << "as with zb-v";
      }
}

TEST(Generate, VSlotsMatchTheClosedForms) {
  for (int p = 1; p <= 12; ++p)
    for (const int m : {1, 2, 3, p, 2 * p, 3 * p + 1}) {
      const auto most = [&](ScheduleKind kind) {
        const Program program = lowered(kind, v_layout(p, m));
        int slots = 0;
        for (Rank r = 0; r < p; ++r) slots = std::max(slots, slots_needed(program, r));
        return slots;
      };
      // Qi et al. 2024, table 1, in halves of a rank's layers.
      SCOPED_TRACE(text(p, " ranks, ", m, " micro-batches"));
      EXPECT_EQ(most(ScheduleKind::zb_v), std::min(2 * m, 2 * p));
      EXPECT_EQ(most(ScheduleKind::v_half), std::min(2 * m, 2 * ((p + 2) / 2)));
      EXPECT_EQ(most(ScheduleKind::v_min), std::min(2 * m, 2 * ((p + 4) / 3)));
      // The table in the DualPipe repository: one pass more than with zb-v.
      if (m >= 2 * p) {
        EXPECT_EQ(most(ScheduleKind::dualpipe_v), 2 * p + 1);
      }
    }
}

TEST(Generate, TurnOfAVNeedsNoMessage) {
  for (const ScheduleKind kind : in_a_v) {
    const Program program = lowered(kind, v_layout(4, 9), {true});
    const auto needs_of = needs(program);
    for (Rank r = 0; r < 4; ++r) {
      EXPECT_EQ(needs_of[static_cast<std::size_t>(r)].handed_over > 0, r == 3) << r;
      int local = 0;
      for (const Instr& i : program.ranks[static_cast<std::size_t>(r)])
        local += is_transfer(i.op) && program.layout.is_local(i);
      EXPECT_EQ(local, r == 3 ? 4 * 9 : 0) << "a send and a receive each way";
    }
    EXPECT_EQ(members_of(Op::reduce_tied, program.layout), 1) << "rank 0 has both ends";
  }
}

TEST(Generate, SchedulesRankByIdleTimeAsExpected) {
  const auto idle = [](ScheduleKind kind, int v) {
    // A chunk of a rank with v chunks takes 1/v of the time.
    const Cost cost = [v](const Instr& i) { return unit_cost(i) / v; };
    return simulate(lowered(kind, {4, 8, v}), cost).timeline.idle_share();
  };
  EXPECT_DOUBLE_EQ(idle(gpipe, 1), 3.0 / 11);
  EXPECT_DOUBLE_EQ(idle(one_f_one_b, 1), 3.0 / 11);
  EXPECT_DOUBLE_EQ(idle(interleaved, 2), 3.0 / 19);
  EXPECT_DOUBLE_EQ(idle(zb_h1, 1), 3.0 / 27);
  EXPECT_GT(idle(one_f_one_b, 1), idle(interleaved, 2));
  EXPECT_GT(idle(interleaved, 2), idle(zb_h1, 1));
}

TEST(Generate, IncompleteRoundsAreNotSlowerThanFullRounds) {
  for (int p = 2; p <= 6; ++p)
    for (int m = 1; m <= 13; ++m)
      for (int v = 2; v <= 3; ++v) {
        const auto span = [&](int micro) {
          return simulate(lowered(interleaved, {p, micro, v}), unit_cost).timeline.span();
        };
        EXPECT_LE(span(m), span((m + p - 1) / p * p)) << p << " " << m << " " << v;
      }
}

TEST(Generate, SlotsMatchTheLiveMicroBatches) {
  for (int p = 1; p <= 6; ++p)
    for (int m = 1; m <= 14; ++m)
      for (Rank r = 0; r < p; ++r) {
        EXPECT_EQ(slots_needed(lowered(gpipe, {p, m}), r), m);
        EXPECT_EQ(slots_needed(lowered(one_f_one_b, {p, m}), r), std::min(m, p - r));
        // No more than the first rank of 1F1B.
        EXPECT_EQ(slots_needed(lowered(zb_h1, {p, m}), r), std::min(m, p));
        for (int v = 2; v <= 3; ++v)
          if (m % p == 0) {
            EXPECT_EQ(slots_needed(lowered(interleaved, {p, m, v}), r),
                      std::min(m * v, 2 * (p - 1 - r) + (v - 1) * p + 1));
          }
      }
}

TEST(Generate, ChunksMustFitTheSchedule) {
  EXPECT_THROW(generate(interleaved, {2, 4, 1}), Error);
  EXPECT_THROW(generate(one_f_one_b, {2, 4, 2}), Error);
  EXPECT_THROW(generate(ScheduleKind::file, {2, 4}), Error);
  EXPECT_THROW(generate(gpipe, {2, 0}), Error);
  EXPECT_THROW(generate(ScheduleKind::zb_v, {2, 4, 2}), Error) << "not in a V";
  EXPECT_THROW(generate(ScheduleKind::zb_v, v_layout(2, 4, 1)), Error);
  EXPECT_THROW(generate(interleaved, v_layout(2, 4)), Error);
}

}  // namespace
}  // namespace trireme::schedule
