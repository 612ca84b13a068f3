#include <trireme/base/check.hpp>

#include "schedule/support.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <utility>

namespace trireme::schedule {
namespace {

std::vector<std::string> words(const std::vector<Instr>& row) {
  std::vector<std::string> out;
  for (const Instr& i : row) out.push_back(to_string(i));
  return out;
}

TEST(Lower, SendsFollowProducersAndReceivesPrecedeConsumers) {
  const std::vector<std::string> expected{
      "receive_activation stage 1 micro 0",  // for the first computation
      "receive_activation stage 1 micro 1",
      "forward stage 1 micro 0",
      "send_activation stage 1 micro 0",
      "receive_gradient stage 1 micro 0",
      "forward stage 1 micro 1",
      "send_activation stage 1 micro 1",
      "receive_gradient stage 1 micro 1",
      "backward stage 1 micro 0",
      "send_gradient stage 1 micro 0",
      "backward stage 1 micro 1",
      "send_gradient stage 1 micro 1",
      "reduce_gradients stage 1",
      "gradient_norm stage 1",
      "optimizer_step stage 1"};
  EXPECT_EQ(words(lowered(one_f_one_b, {3, 2}, {true}).ranks[1]), expected);
}

TEST(Lower, OrderedGroupsExchangeBetweenComputations) {
  // Rank 1 of 3: transfers that become ready with its forward pass, on either side, form one group.
  const std::vector<std::string> expected{"receive_activation stage 1 micro 0",
                                          "forward stage 1 micro 0",
                                          "receive_activation stage 1 micro 1",
                                          "send_activation stage 1 micro 0",
                                          "forward stage 1 micro 1",
                                          "send_activation stage 1 micro 1",
                                          "receive_gradient stage 1 micro 0",
                                          "backward stage 1 micro 0",
                                          "send_gradient stage 1 micro 0",
                                          "receive_gradient stage 1 micro 1",
                                          "backward stage 1 micro 1",
                                          "send_gradient stage 1 micro 1",
                                          "reduce_gradients stage 1",
                                          "gradient_norm stage 1",
                                          "optimizer_step stage 1"};
  EXPECT_EQ(words(lowered(one_f_one_b, {3, 2}, {true, Transport::ordered_groups}).ranks[1]),
            expected);
}

TEST(Lower, FirstAndLastStageReduceTiedGradients) {
  const auto count = [](const Program& program, Rank r) {
    const auto& row = program.ranks[static_cast<std::size_t>(r)];
    return std::count_if(row.begin(), row.end(),
                         [](const Instr& i) { return i.op == Op::reduce_tied; });
  };
  const Program three = lowered(one_f_one_b, {3, 2}, {true});
  EXPECT_EQ(count(three, 0), 1);
  EXPECT_EQ(count(three, 1), 0);
  EXPECT_EQ(count(three, 2), 1);
  EXPECT_EQ(count(lowered(interleaved, {1, 2, 3}, {true}), 0), 1);
  EXPECT_EQ(count(lowered(one_f_one_b, {3, 2}), 0), 0);
}

TEST(Lower, EvaluationNeedsOnlyTransfers) {
  for (const auto& row : lowered(generate_evaluation({3, 4, 2}), {true}).ranks)
    for (const Instr& i : row)
      EXPECT_TRUE(i.op == Op::evaluate || i.op == Op::send_activation ||
                  i.op == Op::receive_activation)
          << i;
}

TEST(Lower, LanesFollowTheOrderOfTheSender) {
  Program program{
      {2, 2},
      {{{Op::forward, 0, 1}, {Op::forward, 0, 0}, {Op::backward, 0, 0}, {Op::backward, 0, 1}},
       {{Op::forward, 1, 0}, {Op::forward, 1, 1}, {Op::backward, 1, 0}, {Op::backward, 1, 1}}}};
  for (const Transport transport : transports)
    EXPECT_EQ(validate(lowered(program, {false, transport}), transport),
              std::vector<std::string>{});
  EXPECT_EQ(lowered(program).ranks[1][0], (Instr{Op::receive_activation, 1, 1}));
}

TEST(Lower, NaiveInterleavingCompletesWithLanesAndHangsInGroups) {
  int hang = 0;
  for (int p = 2; p <= 6; ++p)
    for (int v = 2; v <= 3; ++v) {
      const Program naive = lowered(interleaved, {p, 2 * p, v});
      EXPECT_EQ(validate(naive, Transport::independent_channels), std::vector<std::string>{});
      const auto mistakes = simulate(naive, unit_cost, {Transport::ordered_groups}).mistakes;
      if (mistakes.empty()) continue;
      ++hang;
      EXPECT_NE(mistakes.front().find("rank 0, position "), std::string::npos) << mistakes.front();
      EXPECT_NE(mistakes.front().find("deadlock"), std::string::npos) << mistakes.front();
      EXPECT_FALSE(validate(naive, Transport::ordered_groups).empty());
      const Program ordered =
          lowered(interleaved, {p, 2 * p, v}, {false, Transport::ordered_groups});
      EXPECT_EQ(validate(ordered, Transport::ordered_groups), std::vector<std::string>{});
    }
  EXPECT_GT(hang, 0);
  const Program naive = lowered(interleaved, {4, 8, 2});
  const auto mistakes = validate(naive, Transport::ordered_groups);
  ASSERT_FALSE(mistakes.empty());
  EXPECT_NE(join(mistakes, "\n").find("the queue of rank"), std::string::npos)
      << join(mistakes, "\n");
}

TEST(Lower, RejectsInvalidPrograms) {
  Program elsewhere = generate(gpipe, {2, 2});
  elsewhere.ranks[0][0].stage = 1;
  EXPECT_THROW(lower(elsewhere), Error);
  Program twice = lowered(gpipe, {2, 2});
  EXPECT_THROW(lower(twice), Error);
}

TEST(Lower, TheLargestProgramPassesEveryStage) {
  // 64 ranks × 512 micro-batches × 4 chunks. The times are printed, not tested, because they depend
  // on the machine.
  for (const Transport transport : transports) {
    const auto now = [] { return std::chrono::steady_clock::now(); };
    const auto start = now();
    auto last = start;
    const auto milliseconds = [&] {
      const auto then = std::exchange(last, now());
      return fixed(std::chrono::duration<double, std::milli>(last - then).count(), 1);
    };
    Program program = generate(interleaved, {64, 512, 4});
    std::cout << name_of(transport) << ": generate " << milliseconds();
    lower(program, {true, transport});
    std::cout << ", lower " << milliseconds();
    EXPECT_EQ(validate(program, transport), std::vector<std::string>{});
    std::cout << ", validate " << milliseconds();
    const Simulation simulation = simulate(program, unit_cost, {transport});
    std::cout << ", simulate " << milliseconds() << " ms\n";
    EXPECT_DOUBLE_EQ(simulation.timeline.idle_share(), 63.0 / (4 * 512 + 63));
    EXPECT_EQ(simulation.send_buffers, 2);
  }
}

/// A last stage with few layers and a large vocabulary, whose forward pass has the head's
/// gradients.
TEST(Lower, GroupsTakeTheBetterOfTwoOrders) {
  int shorter = 0;
  for (const Case& c : cases(5, 12, 2)) {
    const Cost cost = [&](const Instr& i) {
      if (i.stage < c.layout.last_stage()) return unit_cost(i);
      return (i.op == Op::forward ? 4 : 0.3) * unit_cost(i);
    };
    const auto span = [&](Transport transport, const Cost& order) {
      return simulate(lowered(c.kind, c.layout, {false, transport, order}), cost).timeline.span();
    };
    const Seconds channels = span(Transport::independent_channels, {});
    const Seconds by_unit = span(Transport::ordered_groups, {});
    const Seconds better = span(Transport::ordered_groups, cost);
    EXPECT_LE(better, by_unit) << c;
    EXPECT_LE(better, 1.02 * channels) << c;
    shorter += better < 0.95 * by_unit ? 1 : 0;
  }
  EXPECT_GT(shorter, 5);
}

}  // namespace
}  // namespace trireme::schedule
