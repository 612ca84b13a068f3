#include <trireme/schedule/machine.hpp>
#include <trireme/schedule/program.hpp>

#include <gtest/gtest.h>

#include <algorithm>

namespace trireme::schedule {
namespace {

constexpr ScheduleKind kinds[] = {ScheduleKind::gpipe, ScheduleKind::one_forward_one_backward};

Program lowered(ScheduleKind kind, int ranks, int micro_batches) {
  Program program = generate(kind, {ranks, micro_batches});
  lower(program);
  return program;
}

Seconds unit_cost(const Instr& i) {
  switch (i.op) {
    case Op::forward:
    case Op::backward_input:
    case Op::backward_weight:
      return 1;
    case Op::backward:
      return 2;
    case Op::reduce_gradients:
    case Op::optimizer_step:
      return 0;
  }
  return 0;
}

TEST(Program, EveryGeneratedProgramIsValid) {
  for (const auto kind : kinds)
    for (int ranks = 1; ranks <= 8; ++ranks)
      for (int micro = 1; micro <= 12; ++micro)
        EXPECT_EQ(validate(lowered(kind, ranks, micro)), std::vector<std::string>{})
            << name_of(kind);
}

TEST(Program, IdleSharesEqualTheClosedForm) {
  // (p − 1) / (m + p − 1), Narayanan et al. 2021, section 2.2: 3/11 for p = 4, m = 8.
  for (const auto kind : kinds)
    for (int p = 1; p <= 6; ++p)
      for (int m = p; m <= 12; ++m) {
        const auto played = play(lowered(kind, p, m), unit_cost);
        EXPECT_DOUBLE_EQ(played.timeline.idle_share(), (p - 1.0) / (m + p - 1.0)) << p << " " << m;
      }
}

TEST(Program, SlotsAreWhatTheScheduleKeepsAlive) {
  for (int p = 1; p <= 5; ++p)
    for (int m = 1; m <= 8; ++m)
      for (Rank r = 0; r < p; ++r) {
        EXPECT_EQ(slots_needed(lowered(ScheduleKind::gpipe, p, m), r), m);
        EXPECT_EQ(slots_needed(lowered(ScheduleKind::one_forward_one_backward, p, m), r),
                  std::min(m, p - r));
      }
}

TEST(Program, EachScheduleAccumulatesMicroBatchesInOrder) {
  for (const auto kind : kinds)
    for (const auto& row : generate(kind, {3, 7}).ranks) {
      Micro next = 0;
      for (const Instr& i : row)
        if (i.op == Op::backward) {
          EXPECT_EQ(i.micro, next++);
        }
      EXPECT_EQ(next, 7);
    }
}

TEST(Program, SplitBackwardIsValidAndKeepsItsSlotUntilTheWeightHalf) {
  Program program{{1, 2},
                  {{{Op::forward, 0, 0},
                    {Op::backward_input, 0, 0},
                    {Op::forward, 0, 1},
                    {Op::backward_input, 0, 1},
                    {Op::backward_weight, 0, 0},
                    {Op::backward_weight, 0, 1}}}};
  lower(program);
  EXPECT_EQ(validate(program), std::vector<std::string>{});
  EXPECT_EQ(slots_needed(program, 0), 2);
}

TEST(Program, DamageIsReportedWithRankPositionAndInstruction) {
  const Program good = lowered(ScheduleKind::one_forward_one_backward, 2, 3);
  const auto damaged = [&](auto change) {
    Program program = good;
    change(program);
    return validate(program);
  };
  const auto first = [](const std::vector<std::string>& mistakes) {
    return mistakes.empty() ? "" : mistakes[0];
  };

  const auto lost = damaged([](Program& p) { p.ranks[0].erase(p.ranks[0].begin()); });
  EXPECT_NE(first(lost).find("waits for ever: needs saved activations of stage 0 micro 0"),
            std::string::npos);
  EXPECT_NE(lost.back().find(
                "rank 1, position 0, forward stage 1 micro 0: waits for ever: needs activation"),
            std::string::npos);
  const auto twice =
      damaged([](Program& p) { p.ranks[1].insert(p.ranks[1].begin(), p.ranks[1][0]); });
  EXPECT_NE(first(twice).find("rank 1, position 1, forward stage 1 micro 0: writes activation"),
            std::string::npos);
  const auto swapped = damaged([](Program& p) { std::swap(p.ranks[1][0], p.ranks[1][1]); });
  EXPECT_NE(first(swapped).find("rank 0"), std::string::npos);
  EXPECT_NE(swapped.back().find("rank 1, position 0, backward stage 1 micro 0: waits for ever"),
            std::string::npos);
  const auto elsewhere = damaged([](Program& p) { p.ranks[0][0].stage = 1; });
  EXPECT_EQ(first(elsewhere), "rank 0, position 0, forward stage 1 micro 0: stage lives on rank 1");
  const auto beyond = damaged([](Program& p) { p.ranks[0][0].micro = 3; });
  EXPECT_EQ(first(beyond),
            "rank 0, position 0, forward stage 0 micro 3: micro-batch is not in 0 … 2");
  const auto unfinished = damaged([](Program& p) { p.ranks[1].pop_back(); });
  EXPECT_EQ(first(unfinished), "rank 1: the weights of stage 1 are never updated");
}

TEST(Program, FingerprintTellsProgramsApart) {
  const Program a = lowered(ScheduleKind::gpipe, 2, 4);
  Program b = a;
  EXPECT_EQ(fingerprint(a), fingerprint(b));
  std::swap(b.ranks[0][0], b.ranks[0][1]);
  EXPECT_NE(fingerprint(a), fingerprint(b));
}

}  // namespace
}  // namespace trireme::schedule
