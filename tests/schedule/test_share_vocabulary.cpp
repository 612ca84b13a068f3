// Programs with a vocabulary that all pipeline ranks share: complete, without deadlock, and as idle
// as stages of equal length allow.
#include <trireme/schedule/generate.hpp>
#include <trireme/schedule/lower.hpp>
#include <trireme/schedule/machine.hpp>
#include <trireme/schedule/needs.hpp>
#include <trireme/schedule/share_vocabulary.hpp>
#include <trireme/schedule/validate.hpp>

#include <gtest/gtest.h>

#include <algorithm>

namespace trireme::schedule {
namespace {

constexpr ScheduleKind kinds_with_one_stage[] = {
    ScheduleKind::gpipe, ScheduleKind::one_forward_one_backward, ScheduleKind::zb_h1};

/// Passes take one unit, the parts of the vocabulary `logits` and half of it.
Cost with_logits(double logits) {
  return [logits](const Instr& i) {
    if (i.op == Op::logits) return logits;
    if (i.op == Op::logits_gradient) return logits / 2;
    return unit_cost(i);
  };
}

Program shared(ScheduleKind kind, int ranks, int micro_batches,
               const Cost& cost = with_logits(0.25),
               Transport transport = Transport::independent_channels, bool tied = false) {
  ProgramLayout layout;
  layout.ranks = ranks;
  layout.micro_batches = micro_batches;
  layout.shares_vocabulary = true;
  Program program = generate(kind, layout);
  share_vocabulary(program, cost);
  lower(program, {tied, transport, cost});
  return program;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

TEST(ShareVocabulary, EveryProgramIsValidWithBothTransports) {
  for (const ScheduleKind kind : kinds_with_one_stage)
    for (const int ranks : {2, 3, 4, 7})
      for (const int m : {1, 2, 3, 8, 19})
        for (const Transport transport :
             {Transport::independent_channels, Transport::ordered_groups}) {
          for (const double logits : {0.0, 0.0001, 0.3}) {
            const Program program = shared(kind, ranks, m, with_logits(logits), transport, true);
            EXPECT_EQ(joined(validate(program)), "")
                << name_of(kind) << " ranks " << ranks << " m " << m << name_of(transport);
            EXPECT_FALSE(program.layout.tied);
          }
        }
}

TEST(ShareVocabulary, EvaluationIsValidWithBothTransports) {
  for (const int ranks : {2, 3, 5})
    for (const int m : {1, 2, 9})
      for (const Transport transport :
           {Transport::independent_channels, Transport::ordered_groups}) {
        ProgramLayout layout;
        layout.ranks = ranks;
        layout.micro_batches = m;
        Program program = generate_evaluation(layout);
        share_vocabulary(program, unit_cost);
        lower(program, {.transport = transport});
        EXPECT_EQ(joined(validate(program)), "") << ranks << " " << m;
      }
}

TEST(ShareVocabulary, AddsFewMicroBatchesInFlight) {
  const int p = 4, m = 12;
  const Program program = shared(ScheduleKind::one_forward_one_backward, p, m);
  for (Rank r = 0; r < p; ++r) EXPECT_EQ(needs(program, r).slots, p - r + 2);
  const Program zero_bubble = shared(ScheduleKind::zb_h1, p, m);
  for (Rank r = 0; r < p; ++r) EXPECT_LE(needs(zero_bubble, r).slots, p + 1);
}

TEST(ShareVocabulary, KeepsFewTableGradients) {
  for (const ScheduleKind kind : kinds_with_one_stage) {
    const Program program = shared(kind, 4, 16);
    for (Rank r = 0; r < 4; ++r) {
      EXPECT_GE(needs(program, r).logits_slots, 1);
      EXPECT_LE(needs(program, r).logits_slots, 3);
    }
  }
}

/// Stages are equal: the time is that of m + p − 1 micro-batches, as without logits, and at most
/// two parts of logits more for the wait of the first micro-batch.
TEST(ShareVocabulary, IdleTimeMatchesEqualStages) {
  const int p = 4;
  for (const int m : {16, 64})
    for (const double logits : {0.1, 0.25, 0.5})
      for (const Transport transport :
           {Transport::independent_channels, Transport::ordered_groups}) {
        const Cost cost = with_logits(logits);
        const Program program =
            shared(ScheduleKind::one_forward_one_backward, p, m, cost, transport);
        const Timeline t = simulate(program, cost).timeline;
        const double work = 3 + 1.5 * logits;
        EXPECT_GE(t.span(), m * work);
        EXPECT_LE(t.span(), (m + p - 1) * work + 2 + 2 * logits)
            << m << " " << logits << " " << name_of(transport);
      }
}

/// Only the first micro-batch and the last one wait for a few messages.
TEST(ShareVocabulary, OverlapsMessagesOfAQuarterPass) {
  const Cost passes = with_logits(0.5);
  const Cost messages = [&](const Instr& i) { return i.op == Op::share_output ? 0.25 : passes(i); };
  for (const ScheduleKind kind : {ScheduleKind::one_forward_one_backward, ScheduleKind::zb_h1})
    for (const int p : {2, 4, 16}) {
      const Program program = shared(kind, p, 64, passes);
      const Seconds without = simulate(program, passes).timeline.span();
      EXPECT_LE(simulate(program, messages).timeline.span(), without + 8 * 0.25)
          << name_of(kind) << p;
    }
}

TEST(ShareVocabulary, NamesAMissingMessage) {
  Program program = shared(ScheduleKind::one_forward_one_backward, 3, 4);
  auto& row = program.ranks[1];
  std::erase(row, Instr{Op::look_up, 1, 2});
  const std::string mistakes = joined(validate(program));
  EXPECT_NE(mistakes.find("look_up stage 1 micro 3: is not in the order"), std::string::npos)
      << mistakes;
  const std::string stuck = joined(simulate(program, unit_cost).mistakes);
  EXPECT_NE(stuck.find("needs the embedding micro 2, which rank 1 never begins"), std::string::npos)
      << stuck;
}

TEST(ShareVocabulary, EmbeddingGradientsMustBeSharedAtOnce) {
  Program program = shared(ScheduleKind::one_forward_one_backward, 2, 4);
  auto& row = program.ranks[0];
  const auto at = std::ranges::find(row, Instr{Op::share_gradient, 0, 0});
  ASSERT_NE(at, row.end());
  const auto pass = std::find_if(at, row.end(), [](const Instr& i) { return is_pass(i.op); });
  std::rotate(at, at + 1, pass + 1);
  EXPECT_NE(joined(validate(program)).find("overwrites the output that share_gradient"),
            std::string::npos);
}

TEST(ShareVocabulary, IdlesLittleWith64StagesAnd512MicroBatches) {
  const Cost cost = with_logits(0.0625);
  const Simulation simulation =
      simulate(shared(ScheduleKind::one_forward_one_backward, 64, 512, cost), cost);
  EXPECT_EQ(joined(simulation.mistakes), "");
  EXPECT_LT(simulation.timeline.idle_share(), 0.112);
}

}  // namespace
}  // namespace trireme::schedule
