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
            EXPECT_EQ(play(program, unit_cost, {transport}).timeline.span(), p - 1 + m * v);
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

TEST(Generate, IdleSharesEqualTheClosedForms) {
  for (int p = 1; p <= 8; ++p)
    for (int m = 1; m <= 24; ++m)
      for (const Transport transport : transports) {
        const auto idle = [&](ScheduleKind kind, int v = 1) {
          const ProgramLayout layout{p, m, v};
          const Program program = lowered(kind, layout, {false, transport});
          return play(program, unit_cost, {transport}).timeline.idle_share();
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

TEST(Generate, SchedulesOfFourRanksAndEightMicroBatchesAreInTheExpectedOrder) {
  const auto idle = [](ScheduleKind kind, int v) {
    // A chunk of a rank with v chunks takes 1/v of the time.
    const Cost cost = [v](const Instr& i) { return unit_cost(i) / v; };
    return play(lowered(kind, {4, 8, v}), cost).timeline.idle_share();
  };
  EXPECT_DOUBLE_EQ(idle(gpipe, 1), 3.0 / 11);
  EXPECT_DOUBLE_EQ(idle(one_f_one_b, 1), 3.0 / 11);
  EXPECT_DOUBLE_EQ(idle(interleaved, 2), 3.0 / 19);
  EXPECT_DOUBLE_EQ(idle(zb_h1, 1), 3.0 / 27);
  EXPECT_GT(idle(one_f_one_b, 1), idle(interleaved, 2));
  EXPECT_GT(idle(interleaved, 2), idle(zb_h1, 1));
}

TEST(Generate, AnIncompleteRoundTakesNoLongerThanAFullOne) {
  for (int p = 2; p <= 6; ++p)
    for (int m = 1; m <= 13; ++m)
      for (int v = 2; v <= 3; ++v) {
        const auto span = [&](int micro) {
          return play(lowered(interleaved, {p, micro, v}), unit_cost).timeline.span();
        };
        EXPECT_LE(span(m), span((m + p - 1) / p * p)) << p << " " << m << " " << v;
      }
}

TEST(Generate, SlotsAreWhatTheScheduleKeepsAlive) {
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
}

}  // namespace
}  // namespace trireme::schedule
