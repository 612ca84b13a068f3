#include <trireme/plan/network_time.hpp>

#include <gtest/gtest.h>

#include "plan/speeds.hpp"

namespace trireme::plan {
namespace {

using architecture::Collective;

constexpr double message_bytes = 1e9;
constexpr double link = 100e9 * 0.5;  ///< bytes/s of testing::cluster()
constexpr double link_latency = 1e-6, network_latency = 1e-5;

deck::ParallelConfig axes(std::int64_t tensor, std::int64_t pipeline, std::int64_t data) {
  deck::ParallelConfig p;
  p.tensor = tensor;
  p.pipeline = pipeline;
  p.data = data;
  return p;
}

struct Case {
  Machine machine = testing::cluster();
  NetworkTime time;
  Case(std::int64_t tensor, std::int64_t pipeline, std::int64_t data,
       SecondAxis second = SecondAxis::pipeline)
      : machine(with(second)), time(machine, axes(tensor, pipeline, data)) {}
  static Machine with(SecondAxis second) {
    Machine m = testing::cluster();
    m.software.second_axis = second;
    return m;
  }
};

void expect_place(const GroupPlace& place, std::int64_t per_node, std::int64_t nodes,
                  std::int64_t sharing) {
  EXPECT_EQ(place.per_node, per_node);
  EXPECT_EQ(place.nodes, nodes);
  EXPECT_EQ(place.sharing, sharing);
}

TEST(NetworkTime, RingOnANodeSendsAllButOnePart) {
  const Case c(4, 1, 1);
  const Seconds once = 0.75 * message_bytes / link + link_latency * (4 + 3) / 2;
  EXPECT_DOUBLE_EQ(c.time.collective(Collective::all_gather, message_bytes, Axis::tensor), once);
  EXPECT_DOUBLE_EQ(c.time.collective(Collective::reduce_scatter, message_bytes, Axis::tensor),
                   once);
  EXPECT_DOUBLE_EQ(c.time.collective(Collective::all_reduce, message_bytes, Axis::tensor),
                   2 * once);
  EXPECT_EQ(c.time.collective(Collective::all_reduce, message_bytes, Axis::data), 0) << "one rank";
}

TEST(NetworkTime, GroupsOfANodeShareItsNetwork) {
  const Case c(8, 1, 4);
  expect_place(c.time.place(Axis::data), 1, 4, 8);
  EXPECT_DOUBLE_EQ(c.time.collective(Collective::all_gather, message_bytes, Axis::data),
                   0.75 * message_bytes / (200e9 * 0.25 / 8) + 3 * network_latency);
}

TEST(NetworkTime, RanksOnANodeUseItsLinksFirst) {
  const Case c(2, 1, 8);
  expect_place(c.time.place(Axis::data), 4, 2, 2);
  EXPECT_DOUBLE_EQ(
      c.time.collective(Collective::all_gather, message_bytes, Axis::data),
      7.0 / 8 * message_bytes / (200e9 * 0.25 / 2) + link_latency * 7 / 2 + network_latency);
}

TEST(NetworkTime, WideGroupsAreAsFastAsTheSlowestLink) {
  const Case c(16, 1, 1);
  expect_place(c.time.place(Axis::tensor), 8, 2, 1);
  const Seconds latency = link_latency * 11 / 2 + network_latency;
  EXPECT_DOUBLE_EQ(c.time.collective(Collective::all_gather, message_bytes, Axis::tensor),
                   15.0 / 16 * message_bytes / link + latency);
  Machine slow = testing::cluster();
  slow.network.bandwidth = 50e9;
  EXPECT_DOUBLE_EQ(NetworkTime(slow, axes(16, 1, 1))
                       .collective(Collective::all_gather, message_bytes, Axis::tensor),
                   15.0 / 16 * message_bytes / (50e9 * 0.5) + latency)
      << "by the efficiency of tensor groups";
}

/// Each rank sends an equal part to every rank of the group; its node's network carries the parts
/// for other nodes of all eight devices.
TEST(NetworkTime, ExpertsExchangeOnTheLinksThatTheirGroupsSpan) {
  Machine m = testing::cluster();
  m.software.second_axis = SecondAxis::data;
  deck::ParallelConfig p = axes(2, 1, 16);
  p.expert = 4;
  const Seconds near = message_bytes * 7 / 8 / link + link_latency;
  EXPECT_DOUBLE_EQ(NetworkTime(m, p).among_expert_ranks(message_bytes), near);
  EXPECT_DOUBLE_EQ(NetworkTime(m, p).among_experts(message_bytes),
                   message_bytes * 3 / 4 / link + link_latency);
  p.expert = 16;
  const double far = message_bytes * 24 / 32 * 8 / (200e9 * 0.5);
  EXPECT_DOUBLE_EQ(NetworkTime(m, p).among_expert_ranks(message_bytes),
                   far + link_latency + network_latency);
  EXPECT_DOUBLE_EQ(NetworkTime(m, p).among_experts(message_bytes),
                   message_bytes * 12 / 16 * 8 / (200e9 * 0.5) + link_latency + network_latency);
  p.expert = p.tensor = 1;
  EXPECT_EQ(NetworkTime(m, p).among_expert_ranks(message_bytes), 0);
}

TEST(NetworkTime, SecondAxisPlacesRanksAfterTensorGroups) {
  const Case pipeline(2, 4, 2);
  expect_place(pipeline.time.place(Axis::tensor), 2, 1, 1);
  expect_place(pipeline.time.place(Axis::pipeline), 4, 1, 1);
  expect_place(pipeline.time.place(Axis::data), 1, 2, 8);
  const Case data(2, 4, 2, SecondAxis::data);
  expect_place(data.time.place(Axis::tensor), 2, 1, 1);
  expect_place(data.time.place(Axis::data), 2, 1, 1);
  expect_place(data.time.place(Axis::pipeline), 2, 2, 4);
}

TEST(NetworkTime, PlacementFollowsTheAxisOrder) {
  const Machine machine = testing::cluster();  // nodes of 8 devices
  deck::ParallelConfig p = axes(4, 4, 8);
  const auto place = [&](const char* order, Axis axis) {
    p.order = order;
    return NetworkTime(machine, p).place(axis);
  };
  // Neighbours along the first axis share a node; those along the last are a node or more apart.
  expect_place(place("", Axis::tensor), 4, 1, 1);
  expect_place(place("", Axis::pipeline), 2, 2, 4);
  expect_place(place("", Axis::data), 1, 8, 8);
  expect_place(place("tensor, data", Axis::data), 2, 4, 4);
  expect_place(place("tensor, data", Axis::pipeline), 1, 4, 8);
  expect_place(place("data", Axis::data), 8, 1, 1);
  expect_place(place("data", Axis::tensor), 1, 4, 8);
  expect_place(place("pipeline, tensor", Axis::pipeline), 4, 1, 1);
  expect_place(place("pipeline, tensor", Axis::tensor), 2, 2, 4);
  Machine other = machine;
  other.software.second_axis = SecondAxis::data;
  p.order = "";
  expect_place(NetworkTime(other, p).place(Axis::data), 2, 4, 4);
  p.order = "tensor, pipeline";
  expect_place(NetworkTime(other, p).place(Axis::data), 1, 8, 8);
}

TEST(NetworkTime, StagesSendWithinANodeOrToTheNextNode) {
  const Case c(2, 8, 1);  // nodes hold the stages 0 to 3 and 4 to 7
  const Seconds within = message_bytes / link + link_latency;
  const Seconds across = message_bytes * 2 / (200e9 * 0.5) + network_latency;
  for (const int from : {0, 1, 2, 4, 5, 6})
    EXPECT_DOUBLE_EQ(c.time.message(message_bytes, from, (from + 1) % 8), within);
  EXPECT_DOUBLE_EQ(c.time.message(message_bytes, 3, 4), across);
  EXPECT_DOUBLE_EQ(c.time.message(message_bytes, 7, 0), across) << "the last to the first";
  const Case data(2, 8, 4, SecondAxis::data);  // a stage to a node
  for (int from = 0; from < 8; ++from)
    EXPECT_DOUBLE_EQ(data.time.message(message_bytes, from, (from + 1) % 8),
                     message_bytes * 8 / (200e9 * 0.5) + network_latency);
  EXPECT_DOUBLE_EQ(Case(16, 2, 1).time.message(message_bytes, 0, 1),
                   message_bytes * 8 / (200e9 * 0.5) + network_latency)
      << "of a stage of two nodes, each sends to one";
  EXPECT_EQ(c.time.message(message_bytes, 3, 3), 0) << "within a rank";
}

TEST(NetworkTime, EndStagesSumTheirTable) {
  EXPECT_EQ(Case(8, 1, 1).time.first_and_last(message_bytes), 0);
  EXPECT_DOUBLE_EQ(Case(4, 2, 1).time.first_and_last(message_bytes),
                   2 * (0.5 * message_bytes / link + link_latency * 5 / 2));
  EXPECT_DOUBLE_EQ(Case(8, 2, 1).time.first_and_last(message_bytes),
                   2 * (0.5 * message_bytes / (200e9 * 0.25 / 8) + network_latency));
  EXPECT_DOUBLE_EQ(Case(2, 8, 1).time.first_and_last(message_bytes),
                   2 * (0.5 * message_bytes / (200e9 * 0.25 / 2) + network_latency));
}

TEST(NetworkTime, AllRanksShareANodeOfUnknownSize) {
  Machine m = testing::cluster();
  m.node.devices = 0;
  const NetworkTime time(m, axes(4, 4, 4));
  for (const Axis axis : {Axis::tensor, Axis::pipeline, Axis::data})
    expect_place(time.place(axis), 4, 1, 1);
  EXPECT_DOUBLE_EQ(time.message(message_bytes, 3, 0), message_bytes / link + link_latency);
}

TEST(NetworkTime, MoreSpeedNeverTakesLonger) {
  struct Speeds {
    const char* name;
    Machine machine;
  };
  std::vector<Speeds> all;
  const auto add = [&](const char* name, auto change) {
    Machine m = testing::cluster();
    change(m);
    all.push_back({name, m});
  };
  add("link", [](Machine& m) { m.node.link_bandwidth *= 2; });
  add("link efficiency", [](Machine& m) { m.node.link_efficiency *= 2; });
  add("link latency", [](Machine& m) { m.node.link_latency = 0; });
  add("network", [](Machine& m) { m.network.bandwidth *= 2; });
  add("efficiency", [](Machine& m) { m.network.efficiency *= 2; });
  add("gradient efficiency", [](Machine& m) { m.network.gradient_efficiency *= 2; });
  add("latency", [](Machine& m) { m.network.latency = 0; });
  const Machine before = testing::cluster();
  std::vector<int> shorter(all.size(), 0);
  for (const std::int64_t t : {1, 2, 4, 8, 16})
    for (const std::int64_t p : {1, 2, 3, 8})
      for (const std::int64_t d : {1, 3, 4}) {
        const NetworkTime slow(before, axes(t, p, d));
        for (std::size_t i = 0; i < all.size(); ++i) {
          const NetworkTime fast(all[i].machine, axes(t, p, d));
          const auto compare = [&](Seconds a, Seconds b) {
            EXPECT_LE(a, b) << all[i].name << " " << t << " " << p << " " << d;
            shorter[i] += a < b ? 1 : 0;
          };
          for (const Axis axis : {Axis::tensor, Axis::pipeline, Axis::data})
            compare(fast.collective(Collective::all_reduce, message_bytes, axis),
                    slow.collective(Collective::all_reduce, message_bytes, axis));
          for (int from = 0; from < p; ++from)
            compare(fast.message(message_bytes, from, (from + 1) % static_cast<int>(p)),
                    slow.message(message_bytes, from, (from + 1) % static_cast<int>(p)));
          compare(fast.first_and_last(message_bytes), slow.first_and_last(message_bytes));
        }
      }
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_GT(shorter[i], 0) << all[i].name;
}

}  // namespace
}  // namespace trireme::plan
