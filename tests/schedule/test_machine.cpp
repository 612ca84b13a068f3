#include <trireme/base/text.hpp>

#include "schedule/support.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace trireme::schedule {
namespace {

Seconds begin_of(const Timeline& t, const Instr& instr) {
  for (const Event& e : t.events)
    if (e.instr == instr) return e.begin;
  ADD_FAILURE() << instr << " did not run";
  return -1;
}
Seconds end_of(const Timeline& t, const Instr& instr) {
  for (const Event& e : t.events)
    if (e.instr == instr) return e.end;
  ADD_FAILURE() << instr << " did not run";
  return -1;
}

TEST(Machine, EventsRespectRowsAndDependences) {
  for (const Case& c : cases(4, 6, 3))
    for (const Transport transport : transports) {
      const Program program = lowered(c.kind, c.layout, {true, transport});
      const Timeline t = simulate(program, unit_cost, {transport}).timeline;
      std::size_t next = 0;
      for (std::size_t r = 0; r < program.ranks.size(); ++r) {
        Seconds free_at = 0;
        for (std::size_t p = 0; p < program.ranks[r].size(); ++p, ++next) {
          const Event& e = t.events.at(next);
          ASSERT_EQ(e.instr, program.ranks[r][p]);
          ASSERT_EQ(e.rank, static_cast<Rank>(r));
          ASSERT_EQ(e.position, static_cast<int>(p));
          if (is_receive(e.instr.op)) continue;
          ASSERT_GE(e.begin, free_at) << c;
          free_at = e.end;
        }
      }
      ASSERT_EQ(next, t.events.size());
      EXPECT_EQ(t, simulate(program, unit_cost, {transport}).timeline) << c;
    }
}

TEST(Machine, TransfersOverlapWithComputations) {
  const auto cost = [](Seconds transfer) {
    return [transfer](const Instr& i) { return is_receive(i.op) ? transfer : unit_cost(i); };
  };
  for (const Transport transport : transports) {
    const Program program = lowered(gpipe, {2, 4}, {false, transport});
    const Timeline t = simulate(program, cost(0.5), {transport}).timeline;
    EXPECT_EQ(begin_of(t, {Op::forward, 1, 0}), 1.5);
    EXPECT_EQ(begin_of(t, {Op::receive_activation, 1, 0}), 1);
    EXPECT_EQ(end_of(t, {Op::receive_activation, 1, 0}), 1.5);
    EXPECT_EQ(end_of(t, {Op::receive_activation, 1, 0}), begin_of(t, {Op::forward, 1, 0}));
    EXPECT_GT(t.idle_share(), simulate(program, unit_cost, {transport}).timeline.idle_share());
    // With channels the later transfers are in flight while rank 1 computes. Groups come in the row
    // between the computations that end with the producer.
    if (transport == Transport::ordered_groups) continue;
    EXPECT_EQ(begin_of(t, {Op::forward, 1, 3}), 4.5);
    EXPECT_EQ(t.span(), simulate(program, unit_cost, {transport}).timeline.span() + 2 * 0.5);
  }
}

TEST(Machine, CollectivesWaitForTheLastMember) {
  const Program program = lowered(one_f_one_b, {3, 4}, {true});
  const Timeline t =
      simulate(program, [](const Instr& i) {
        return i.op == Op::reduce_tied ? 5 : i.op == Op::gradient_norm ? 2 : unit_cost(i);
      }).timeline;
  // Rank 0 ends its backward passes last, at (4 + 2) · 3.
  EXPECT_EQ(t.span(), 18);
  EXPECT_EQ(begin_of(t, {Op::reduce_tied, 0, 0}), 18);
  EXPECT_EQ(begin_of(t, {Op::reduce_tied, 2, 0}), 18);
  for (Rank r = 0; r < 3; ++r) {
    EXPECT_EQ(begin_of(t, {Op::gradient_norm, r, 0}), 23);
    EXPECT_EQ(begin_of(t, {Op::optimizer_step, r, 0}), 25);
  }
  // Transfers do not count as busy.
  EXPECT_DOUBLE_EQ(t.idle_share(), 2.0 / 6);
}

/// Rank 1 processes micro-batch 0 in both of its chunks before the others. By then, rank 0 has sent
/// `micro_batches` of them.
Program impatient(int micro_batches) {
  Program program{{2, micro_batches, 2}, {{}, {}}};
  auto& first = program.ranks[0];
  auto& second = program.ranks[1];
  for (Micro m = 0; m < micro_batches; ++m) first.push_back({Op::evaluate, 0, m});
  for (Micro m = 0; m < micro_batches; ++m) first.push_back({Op::evaluate, 2, m});
  for (Micro m = 0; m < micro_batches; ++m) {
    second.push_back({Op::evaluate, 1, m});
    second.push_back({Op::evaluate, 3, m});
  }
  lower(program);
  return program;
}

TEST(Machine, SendsWaitForOneOfTheFewestBuffers) {
  for (const int m : {5, 9, 40}) {
    const Program program = impatient(m);
    const Needs n = needs(program, 0);
    // When rank 0 starts the last send, rank 1 has posted two receives and waits for chunk 1.
    EXPECT_EQ(n.send_buffers, m - 2);
    SimulateOptions options;
    options.send_buffers = n.send_buffers;
    EXPECT_EQ(simulate(program, unit_cost, options).mistakes, std::vector<std::string>{});
    --options.send_buffers;
    const auto mistakes = simulate(program, unit_cost, options).mistakes;
    ASSERT_FALSE(mistakes.empty());
    EXPECT_NE(mistakes[0].find("rank 0, position "), std::string::npos) << mistakes[0];
    EXPECT_NE(
        mistakes[0].find(text("send buffers are in use, the oldest by send_activation stage 0 "
                              "micro ")),
        std::string::npos)
        << mistakes[0];
    EXPECT_EQ(validate(program), std::vector<std::string>{});
    ValidateOptions limit;
    limit.send_buffers = options.send_buffers;
    EXPECT_FALSE(validate(program, Transport::independent_channels, limit).empty());
  }
}

TEST(Machine, TwoSendBuffersServeEverySchedule) {
  for (const Case& c : cases(8, 17, 4))
    for (const Transport transport : transports) {
      const Program program = lowered(c.kind, c.layout, {false, transport});
      const Simulation simulation = simulate(program, unit_cost, {transport});
      EXPECT_EQ(simulation.send_buffers, 2) << c;
      // They cost no time either.
      EXPECT_EQ(simulation.timeline.span(),
                simulate(program, unit_cost, {transport, c.layout.micro_batches}).timeline.span())
          << c;
    }
}

TEST(Needs, CountBuffersPerRow) {
  const auto channels = needs(lowered(one_f_one_b, {4, 8}));
  for (Rank r = 0; r < 4; ++r) {
    const Needs& n = channels[static_cast<std::size_t>(r)];
    EXPECT_EQ(n.slots, 4 - r);
    EXPECT_EQ(n.received_activations, r == 0 ? 0 : r == 3 ? 1 : 2) << r;
    EXPECT_FALSE(n.split_backward);
    EXPECT_EQ(n.send_buffers, 2);
    EXPECT_EQ(n, needs(lowered(one_f_one_b, {4, 8}), r));
  }
  EXPECT_EQ(channels[3].received_gradients, 0);
  EXPECT_EQ(channels[0].received_gradients, 2);  // one is consumed while the next arrives
  EXPECT_TRUE(needs(lowered(zb_h1, {4, 8}), 2).split_backward);
}

TEST(Needs, StaySmallUnderBothTransports) {
  // Channels post receives one computation ahead, so 2 buffers are enough. Groups receive whatever
  // the neighbour has ready: at most the warm-up's lead.
  for (const Case& c : cases(6, 13, 3))
    for (const Transport transport : transports)
      for (const Needs& n : needs(lowered(c.kind, c.layout, {false, transport}))) {
        const int most = transport == Transport::independent_channels ? 2 : c.layout.ranks + 1;
        EXPECT_LE(n.received_activations, most) << c << name_of(transport);
        EXPECT_LE(n.received_gradients, most) << c << name_of(transport);
      }
}

}  // namespace
}  // namespace trireme::schedule
