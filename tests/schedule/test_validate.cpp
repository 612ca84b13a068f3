#include <trireme/base/text.hpp>

#include "schedule/support.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace trireme::schedule {
namespace {

using Row = std::vector<Instr>;

std::size_t position(const Program& program, Rank rank, const Instr& instr) {
  const Row& row = program.ranks[static_cast<std::size_t>(rank)];
  const auto found = std::find(row.begin(), row.end(), instr);
  EXPECT_NE(found, row.end()) << instr;
  return static_cast<std::size_t>(found - row.begin());
}

/// "rank 1, position 4, forward stage 1 micro 0: "
std::string place(Rank rank, std::size_t position, const Instr& instr) {
  return text("rank ", rank, ", position ", position, ", ", to_string(instr), ": ");
}
std::string end_place(const Program& program, Rank rank, const Instr& instr) {
  return text("rank ", rank, ", position ", program.ranks[static_cast<std::size_t>(rank)].size(),
              " (the end), ", to_string(instr), ": ");
}

/// Damages a program of 1F1B on three ranks with tied tables.
class Damage : public ::testing::TestWithParam<Transport> {
 protected:
  Program good_ = lowered(one_f_one_b, {3, 4}, {true, GetParam()});
  Program program_ = good_;

  Row& row(Rank r) { return program_.ranks[static_cast<std::size_t>(r)]; }
  std::size_t at(Rank r, const Instr& i) const { return position(program_, r, i); }
  void erase(Rank r, const Instr& i) {
    row(r).erase(row(r).begin() + static_cast<std::ptrdiff_t>(at(r, i)));
  }
  void insert(Rank r, std::size_t p, const Instr& i) {
    row(r).insert(row(r).begin() + static_cast<std::ptrdiff_t>(p), i);
  }
  void swap(Rank r, const Instr& a, const Instr& b) {
    std::swap(row(r)[at(r, a)], row(r)[at(r, b)]);
  }
  /// Expects a mistake that begins with `beginning` and contains `words`.
  void expect(const std::string& beginning, const std::string& words) {
    ASSERT_NE(program_, good_);
    const auto mistakes = validate(program_, GetParam());
    const bool found = std::any_of(mistakes.begin(), mistakes.end(), [&](const std::string& m) {
      return m.starts_with(beginning) && m.find(words) != std::string::npos;
    });
    EXPECT_TRUE(found) << beginning << words << "\nfound:\n" << join(mistakes, "\n");
  }
};
INSTANTIATE_TEST_SUITE_P(Transports, Damage, ::testing::ValuesIn(transports), [](const auto& run) {
  return run.param == Transport::ordered_groups ? "groups" : "channels";
});

TEST_P(Damage, DetectsALostForward) {
  const Instr lost{Op::forward, 1, 2};
  const Instr send{Op::send_activation, 1, 2};
  erase(1, lost);
  expect(end_place(program_, 1, lost), "is missing");
  expect(place(1, at(1, send), send),
         "needs the output of stage 1 micro 2, which no instruction on this rank provides");
}

TEST_P(Damage, DetectsALostBackward) {
  erase(2, {Op::backward, 2, 3});
  expect(end_place(program_, 2, {Op::backward, 2, 3}), "is missing");
  const Instr reduce{Op::reduce_gradients, 2, 0};
  expect(place(2, at(2, reduce), reduce), "needs the weight gradient of stage 2 up to micro 3");
}

TEST_P(Damage, DetectsALostReceive) {
  const Instr receive{Op::receive_activation, 1, 2};
  erase(1, receive);
  expect(place(1, at(1, {Op::forward, 1, 2}), {Op::forward, 1, 2}),
         "needs a posted receive of the input of stage 1 micro 2");
}

TEST_P(Damage, DetectsALostSend) {
  erase(0, {Op::send_activation, 0, 1});
  const std::size_t next = at(0, {Op::forward, 0, 2});
  expect(place(0, next, {Op::forward, 0, 2}),
         "overwrites the output that send_activation stage 0 micro 1 sends");
}

TEST_P(Damage, DetectsALateSend) {
  const Instr send{Op::send_gradient, 2, 0};
  const std::size_t before = at(2, send);
  erase(2, send);
  const Instr next{Op::forward, 2, 1};
  insert(2, at(2, next) + 1, send);
  expect(place(2, at(2, next), next), text("overwrites the output that ", to_string(send),
                                           " sends; the send must directly "
                                           "follow position ",
                                           before - 1));
}

TEST_P(Damage, DetectsADoubleForward) {
  const Instr twice{Op::forward, 0, 0};
  const std::size_t p = at(0, {Op::forward, 0, 1});
  insert(0, p, twice);
  expect(place(0, p, twice), "provides the saved activations of stage 0 micro 0 a second time");
}

TEST_P(Damage, DetectsASwappedChain) {
  const Instr first{Op::backward, 1, 1};
  const Instr second{Op::backward, 1, 2};
  swap(1, first, second);
  expect(place(1, at(1, second), second),
         text("needs the weight gradient of stage 1 up to micro 1, which comes later, at position ",
              at(1, first), " (backward stage 1 micro 1)"));
}

TEST_P(Damage, DetectsBackwardBeforeForward) {
  swap(2, {Op::forward, 2, 0}, {Op::backward, 2, 0});
  const Instr early{Op::backward, 2, 0};
  expect(place(2, at(2, early), early),
         "needs the saved activations of stage 2 micro 0, which comes later");
}

TEST_P(Damage, DetectsAWrongRank) {
  row(0)[at(0, {Op::forward, 0, 0})].stage = 1;
  expect(place(0, at(0, {Op::forward, 1, 0}), {Op::forward, 1, 0}), "its stage is on rank 1");
}

TEST_P(Damage, DetectsIndicesOutOfRange) {
  const std::size_t p = at(1, {Op::forward, 1, 0});
  row(1)[p].micro = 4;
  expect(place(1, p, {Op::forward, 1, 4}), "its micro-batch is not in 0 … 3");
  row(1)[p] = {Op::forward, 7, 0};
  expect(place(1, p, {Op::forward, 7, 0}), "its stage is not in 0 … 2");
}

TEST_P(Damage, DetectsATransferBeyondTheEnds) {
  insert(2, 0, {Op::receive_gradient, 2, 0});
  expect(place(2, 0, {Op::receive_gradient, 2, 0}), "the last stage has no next stage");
  row(2)[0] = {Op::forward, 2, 0};
  insert(0, 0, {Op::receive_activation, 0, 0});
  expect(place(0, 0, {Op::receive_activation, 0, 0}), "the first stage has no previous stage");
}

TEST_P(Damage, DetectsReorderedCollectives) {
  // The swap also breaks the norm's reads; the order is reported separately.
  swap(2, {Op::reduce_tied, 2, 0}, {Op::gradient_norm, 2, 0});
  expect(place(2, at(2, {Op::gradient_norm, 2, 0}), {Op::gradient_norm, 2, 0}),
         text("is this rank's collective number 0, but rank 0's is reduce_tied stage 0 (position ",
              at(0, {Op::reduce_tied, 0, 0}), ")"));
}

TEST_P(Damage, DetectsAMissingCollective) {
  erase(1, {Op::gradient_norm, 1, 0});
  const Instr first{Op::gradient_norm, 0, 0};
  expect(place(0, at(0, first), first), "is a collective that rank 1 does not call");
}

TEST_P(Damage, DetectsTheNormBeforeTheReduction) {
  swap(1, {Op::gradient_norm, 1, 0}, {Op::reduce_gradients, 1, 0});
  const Instr early{Op::gradient_norm, 1, 0};
  expect(place(1, at(1, early), early), "needs the reduced gradient of stage 1, which comes later");
}

TEST_P(Damage, DetectsALostUpdate) {
  erase(0, {Op::optimizer_step, 0, 0});
  expect(end_place(program_, 0, {Op::optimizer_step, 0, 0}), "is missing");
}

TEST_P(Damage, DetectsReorderedReceives) {
  swap(1, {Op::receive_activation, 1, 0}, {Op::receive_activation, 1, 1});
  const auto mistakes = validate(program_, GetParam());
  expect(place(1, at(1, {Op::receive_activation, 1, 1}), {Op::receive_activation, 1, 1}),
         "is number 0 of its queue, but send_activation stage 0 micro 0 (rank 0, position ");
}

TEST_P(Damage, DetectsAReceiveWithoutASend) {
  program_ = lowered(generate_evaluation({2, 2}), {false, GetParam()});
  good_ = program_;
  erase(0, {Op::send_activation, 0, 1});
  erase(0, {Op::evaluate, 0, 1});
  const Instr receive{Op::receive_activation, 1, 1};
  expect(place(1, at(1, receive), receive), "has no send_activation stage 0 micro 1 on rank 0");
}

TEST_P(Damage, DetectsAnEvaluationAmongTraining) {
  const Instr odd{Op::evaluate, 2, 0};
  insert(2, 0, odd);
  expect(place(2, 0, odd), "is in a program for training");
}

TEST_P(Damage, DetectsALostRow) {
  program_.ranks.pop_back();
  expect("the program has 2 rows for 3 ranks", "");
}

TEST(Validate, ReportsBothEndsOfADeadlock) {
  // Each rank waits for the other's later work: rank 0 needs a gradient before it sends forward 1,
  // and rank 1 needs forward 1 before it sends the gradient.
  const Program program{
      {2, 2},
      {{{Op::forward, 0, 0}, {Op::backward, 0, 0}, {Op::forward, 0, 1}, {Op::backward, 0, 1}},
       {{Op::forward, 1, 0}, {Op::forward, 1, 1}, {Op::backward, 1, 0}, {Op::backward, 1, 1}}}};
  for (const Transport transport : transports) {
    const Program hangs = lowered(program, {false, transport});
    const auto mistakes = validate(hangs, transport);
    ASSERT_EQ(mistakes.size(), 2u);
    const Instr first{Op::backward, 0, 0};
    const Instr second{Op::forward, 1, 1};
    const auto begins = [](const std::string& mistake, const std::string& beginning) {
      EXPECT_TRUE(mistake.starts_with(beginning)) << mistake << "\n" << beginning;
    };
    begins(mistakes[0], place(0, position(hangs, 0, first), first) +
                            "deadlock: receive_gradient stage 0 micro 0 waits for "
                            "send_gradient stage 1 micro 0 on rank 1");
    begins(mistakes[1], place(1, position(hangs, 1, second), second) +
                            "deadlock: receive_activation stage 1 micro 1 waits for "
                            "send_activation stage 0 micro 1 on rank 0");
  }
}

TEST(Validate, DetectsSlotsAboveTheLimit) {
  const Program program = lowered(one_f_one_b, {3, 5});
  ValidateOptions options;
  options.slots = 3;
  EXPECT_EQ(validate(program, Transport::independent_channels, options),
            std::vector<std::string>{});
  options.slots = 2;
  const Instr third{Op::forward, 0, 2};
  const auto mistakes = validate(program, Transport::independent_channels, options);
  ASSERT_EQ(mistakes.size(), 1u);
  EXPECT_EQ(mistakes[0],
            place(0, position(program, 0, third), third) +
                "needs slot number 3 of saved activations, but the limit is 2 (the whole "
                "row needs 3)");
}

TEST(Validate, BoundsTheReportOfOneCause) {
  Program program = lowered(gpipe, {4, 64});
  for (auto& row : program.ranks) row.clear();
  const auto mistakes = validate(program);
  EXPECT_LT(mistakes.size(), 40u);
  EXPECT_NE(mistakes.back().find("more mistakes"), std::string::npos) << mistakes.back();
}

TEST(Validate, DetectsAnyLostInstructionOfAnySchedule) {
  for (const Case& c : {Case{gpipe, {3, 4}}, Case{one_f_one_b, {3, 4}}, Case{zb_h1, {3, 4}},
                        Case{interleaved, {2, 4, 2}}, Case{interleaved, {1, 2, 3}}})
    for (const Transport transport : transports) {
      const Program good = lowered(c.kind, c.layout, {true, transport});
      for (std::size_t r = 0; r < good.ranks.size(); ++r)
        for (std::size_t p = 0; p < good.ranks[r].size(); ++p) {
          Program program = good;
          program.ranks[r].erase(program.ranks[r].begin() + static_cast<std::ptrdiff_t>(p));
          EXPECT_FALSE(validate(program, transport).empty()) << c << " " << good.ranks[r][p];
        }
    }
}

}  // namespace
}  // namespace trireme::schedule
