#include <trireme/base/check.hpp>

#include "schedule/support.hpp"

#include <gtest/gtest.h>

namespace trireme::schedule {
namespace {

Timeline uneven() {
  int calls = 0;
  return simulate(lowered(zb_h1, {3, 5}, {true}),
                  [&](const Instr& i) { return 0.1 + 0.7 * unit_cost(i) / (1 + ++calls % 5); })
      .timeline;
}

TEST(Timeline, IdleShareCountsComputationsOnly) {
  Timeline t{{2, 1},
             {{0, 0, {Op::optimizer_step, 0, 0}, 0, 5},
              {0, 1, {Op::forward, 0, 0}, 10, 12},
              {0, 2, {Op::receive_gradient, 0, 0}, 12, 19},
              {1, 0, {Op::forward, 1, 0}, 13, 14},
              {1, 1, {Op::gradient_norm, 1, 0}, 14, 30}}};
  EXPECT_EQ(t.begin(), 10);
  EXPECT_EQ(t.end(), 14);
  EXPECT_DOUBLE_EQ(t.idle_share(), 1 - 3.0 / (2 * 4));
  EXPECT_EQ(Timeline{}.idle_share(), 0);
  EXPECT_EQ(Timeline{}.span(), 0);
}

TEST(Timeline, ReadsBackExactly) {
  Timeline t = uneven();
  t.events[3].begin = 1.0 / 3;
  t.events[3].end = 1e9 + 1.0 / 7;
  const Timeline again = read_timeline(write_timeline(t), "t");
  EXPECT_EQ(again, t);
  EXPECT_TRUE(again.layout.tied);
  t.layout.placement = StagePlacement::v;
  EXPECT_EQ(read_timeline(write_timeline(t), "t"), t);
}

TEST(Timeline, MistakesNameFileAndLine) {
  const auto error = [](const std::string& content) -> std::string {
    try {
      read_timeline(content, "a.timeline");
    } catch (const UsageError& e) {
      return e.what();
    }
    return "no error";
  };
  const std::string head = "trireme timeline 1\nranks 2 micro_batches 3 chunks 1 tied 0\n";
  EXPECT_EQ(error(head + "# nothing ran\n"), "no error");
  EXPECT_EQ(error(head + "0 0 forward 0 0 1 2\r\n"), "no error");
  const auto expect = [&](const std::string& content, const std::string& beginning) {
    EXPECT_EQ(error(content).substr(0, beginning.size()), beginning);
  };
  expect("", "a.timeline:0: ``: expected `trireme timeline 1`");
  expect("trireme timeline 2", "a.timeline:1: `2`: expected `1`");
  expect("trireme timeline 1\nranks 0", "a.timeline:2: `0`: expected the number of ranks");
  expect(head + "2 0 forward 0 0 1 2", "a.timeline:3: `2`: expected a rank, a number from 0 to 1");
  expect(head + "0 0 fly 0 0 1 2", "a.timeline:3: `fly`: expected the name of an instruction");
  expect(head + "0 0 forward 2 0 1 2", "a.timeline:3: `2`: expected a stage");
  expect(head + "0 0 forward 0 3 1 2", "a.timeline:3: `3`: expected a micro-batch");
  expect(head + "0 0 forward 0 0 2 1", "a.timeline:3: `1`: expected a time not before the begin");
  expect(head + "0 0 forward 0 0 nan 1", "a.timeline:3: `nan`: expected a time");
  expect(head + "0 0 forward 0 0 1", "a.timeline:3: ``: expected a time not before");
  expect(head + "0 0 forward 0 0 1 2 3", "a.timeline:3: `3`: expected the end of the line");
}

TEST(Timeline, MeanCostsReproduceTheMeasurement) {
  // If every (operation, stage) always takes the same time, the prediction is the measurement.
  const Cost truth = [](const Instr& i) {
    if (is_receive(i.op)) return 0.25 * (i.stage + 1);
    return unit_cost(i) * (1 + 0.5 * i.stage) + (i.op == Op::gradient_norm ? 0.125 : 0);
  };
  for (const Transport transport : transports)
    for (const Case& c : cases(3, 5, 2)) {
      const Program program = lowered(c.kind, c.layout, {true, transport});
      const Timeline measured = simulate(program, truth, {transport}).timeline;
      const Cost costs = mean_costs(measured);
      if (transport == Transport::ordered_groups) {
        // A group's transfers arrive together, so one transfer can take longer than alone.
        EXPECT_EQ(costs({Op::forward, 0, 0}), 1);
        continue;
      }
      EXPECT_EQ(simulate(program, costs, {transport}).timeline, measured) << c;
    }
  EXPECT_EQ(mean_costs(Timeline{})({Op::forward, 0, 0}), 0);
  EXPECT_EQ(mean_costs(Timeline{})({Op::forward, 9, 0}), 0);
}

}  // namespace
}  // namespace trireme::schedule
