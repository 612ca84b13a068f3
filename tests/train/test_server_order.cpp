// The order in which servers send weights and update them.
#include <trireme/train/server_order.hpp>

#include <trireme/base/check.hpp>

#include <gtest/gtest.h>

namespace trireme::train {
namespace {

using Kind = ServerEvent::Kind;

/// All events that are possible now, in their order.
std::vector<ServerEvent> take_events(ServerOrder& order) {
  std::vector<ServerEvent> events;
  while (const auto event = order.next(1000)) {
    order.apply(*event);
    events.push_back(*event);
  }
  return events;
}

TEST(ServerOrder, AllWorkersGetTheLastWeightsWithoutStaleness) {
  ServerOrder order(2, 0, ServerUpdates::step);
  order.reset(4);
  order.asks(1, 5);
  order.asks(0, 5);
  EXPECT_EQ(take_events(order),
            (std::vector<ServerEvent>{{Kind::fetch, 1, 5}, {Kind::fetch, 0, 5}}));
  order.pushed(0, 5);
  order.asks(0, 6);
  EXPECT_TRUE(take_events(order).empty());
  order.pushed(1, 5);
  EXPECT_EQ(take_events(order),
            (std::vector<ServerEvent>{{Kind::update, -1, 5}, {Kind::fetch, 0, 6}}));
  EXPECT_EQ(order.complete(), 5);
  EXPECT_EQ(order.updates(), 5);
}

TEST(ServerOrder, WorkersAreAheadByAtMostTheStaleness) {
  ServerOrder order(2, 2, ServerUpdates::step);
  order.reset(0);
  for (std::int64_t step = 1; step <= 3; ++step) {
    order.asks(0, step);
    EXPECT_EQ(take_events(order), (std::vector<ServerEvent>{{Kind::fetch, 0, step}}));
    order.pushed(0, step);
  }
  order.asks(0, 4);
  EXPECT_TRUE(take_events(order).empty()) << "its weights would lack the updates of 3 steps";
  order.asks(1, 1);
  EXPECT_EQ(take_events(order), (std::vector<ServerEvent>{{Kind::fetch, 1, 1}}));
  order.pushed(1, 1);
  EXPECT_EQ(take_events(order),
            (std::vector<ServerEvent>{{Kind::update, -1, 1}, {Kind::fetch, 0, 4}}));
}

TEST(ServerOrder, AppliesPushesInOrderOfArrival) {
  ServerOrder order(2, 1, ServerUpdates::push);
  order.reset(0);
  order.asks(0, 1);
  order.asks(1, 1);
  EXPECT_EQ(take_events(order).size(), 2u);
  order.pushed(1, 1);
  order.asks(1, 2);
  EXPECT_EQ(take_events(order),
            (std::vector<ServerEvent>{{Kind::update, 1, 1}, {Kind::fetch, 1, 2}}));
  EXPECT_EQ(order.complete(), 0);
  EXPECT_EQ(order.updates(), 1);
  order.pushed(1, 2);
  order.asks(1, 3);
  EXPECT_EQ(take_events(order), (std::vector<ServerEvent>{{Kind::update, 1, 2}}));
  order.pushed(0, 1);
  EXPECT_EQ(take_events(order),
            (std::vector<ServerEvent>{{Kind::update, 0, 1}, {Kind::fetch, 1, 3}}));
}

TEST(ServerOrder, ReplayWaitsForTheRecordedOrder) {
  ServerOrder order(2, 1, ServerUpdates::push);
  order.reset(0);
  order.replay({{Kind::fetch, 0, 1},
                {Kind::fetch, 1, 1},
                {Kind::update, 1, 1},
                {Kind::fetch, 1, 2},
                {Kind::update, 0, 1}});
  order.asks(1, 1);
  EXPECT_FALSE(order.next(1000)) << "worker 0 was first";
  order.asks(0, 1);
  EXPECT_EQ(take_events(order).size(), 2u);
  order.pushed(0, 1);
  EXPECT_FALSE(order.next(1000));
  order.pushed(1, 1);
  EXPECT_EQ(take_events(order), (std::vector<ServerEvent>{{Kind::update, 1, 1}}));
  EXPECT_THROW(order.next(1), Error) << "step 2 begins before step 1 is complete";
  order.asks(1, 2);
  for (const ServerEvent& last : {ServerEvent{Kind::fetch, 1, 2}, {Kind::update, 0, 1}}) {
    EXPECT_EQ(order.next(1000), last);
    order.apply(last);
  }
  EXPECT_THROW(order.next(1000), Error) << "the record has ended";
}

}  // namespace
}  // namespace trireme::train
