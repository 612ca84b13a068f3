#include <trireme/base/check.hpp>
#include <trireme/grid/message_block.hpp>
#include <trireme/grid/runtime.hpp>
#include <trireme/layout/split.hpp>
#include <trireme/tensor/arena.hpp>

#include "support/device_access.hpp"
#include "support/imitated_transport.hpp"
#include "support/runtime.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

namespace trireme::grid {
namespace {

using trireme::testing::runtime;
using trireme::testing::set_values;
using trireme::testing::values_of;

using Counts = std::vector<std::int64_t>;

/// Distinct integers, whose sums are exact.
template <class T>
std::vector<T> input(int rank, std::int64_t n) {
  std::vector<T> x(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<T>(static_cast<std::int64_t>(i % 1000) + 1000 * rank);
  return x;
}

/// Numbers whose sums round, so that another order of summation gives other bits.
std::vector<float> rounding_input(int rank, std::int64_t n) {
  std::vector<float> x(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] =
        1.0f / static_cast<float>(3 + (i * 7919 + static_cast<std::size_t>(rank) * 104729) % 997);
  return x;
}

enum class Way : std::uint8_t { by_default, through_the_host, in_long_messages, on_a_transport };

std::unique_ptr<Communicator> communicator(Way way) {
  auto made = runtime().world().split(0, runtime().rank(), "test");
  if (way == Way::through_the_host) made->stage_through_host();
  if (way == Way::on_a_transport && made->size() > 1)
    made->use(trireme::testing::imitate_nccl(*made));
  return made;
}

/// Uneven counts, one of them zero.
Counts counts_for(int ranks, std::int64_t unit) {
  Counts counts;
  for (int r = 0; r < ranks; ++r) counts.push_back(r == 1 ? 0 : unit * (r + 1) + r);
  return counts;
}

std::int64_t total(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

class Verbs : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    if (GetParam() == Way::on_a_transport && !trireme::testing::can_imitate_nccl)
      GTEST_SKIP() << "the imitated transport moves the memory of hosts";
    // MPI's limit is set to 7 elements: the tested lengths include whole blocks with and without a
    // remainder.
    if (GetParam() == Way::in_long_messages) counted_ = set_counted_elements(7);
  }
  void TearDown() override {
    if (GetParam() == Way::in_long_messages) set_counted_elements(counted_);
  }
  int counted_ = 0;
};
std::string name(const ::testing::TestParamInfo<Way>& way) {
  switch (way.param) {
    case Way::by_default:
      return "AsByDefault";
    case Way::through_the_host:
      return "ThroughTheHost";
    case Way::in_long_messages:
      return "InLongMessages";
    case Way::on_a_transport:
      return "OnATransport";
  }
  return "";
}
INSTANTIATE_TEST_SUITE_P(Ways, Verbs,
                         ::testing::Values(Way::by_default, Way::through_the_host,
                                           Way::in_long_messages, Way::on_a_transport),
                         name);

TEST_P(Verbs, AllGatherJoinsUnevenParts) {
  const auto world = communicator(GetParam());
  for (const std::int64_t unit : {0, 5, 40'000}) {
    const Counts counts = counts_for(world->size(), unit);
    const std::int64_t mine = counts[static_cast<std::size_t>(world->rank())];
    std::vector<float> expected;
    for (int r = 0; r < world->size(); ++r) {
      const auto part = input<float>(r, counts[static_cast<std::size_t>(r)]);
      expected.insert(expected.end(), part.begin(), part.end());
    }
    const std::int64_t first =
        std::accumulate(counts.begin(), counts.begin() + world->rank(), std::int64_t{0});
    for (const bool in_place : {false, true}) {
      Arena arena("test", 4 * (2 * total(counts) + 100));
      const auto all = arena.take<float>(total(counts));
      const View1<float> part =
          in_place ? View1<float>(all.data() + first, static_cast<std::size_t>(mine))
                   : arena.take<float>(mine);
      set_values(part, input<float>(world->rank(), mine));
      world->all_gather(Exec(), all, part, counts, "test");
      EXPECT_EQ(values_of(all), expected) << unit << (in_place ? " in place" : "");
    }
  }
}

TEST_P(Verbs, ReduceScatterGivesEachRankItsPart) {
  const auto world = communicator(GetParam());
  const int ranks = world->size();
  for (const std::int64_t unit : {0, 5, 40'000}) {
    const Counts counts = counts_for(ranks, unit);
    const std::int64_t mine = counts[static_cast<std::size_t>(world->rank())];
    const auto first = static_cast<std::size_t>(
        std::accumulate(counts.begin(), counts.begin() + world->rank(), std::int64_t{0}));
    const auto own = input<double>(0, total(counts));
    std::vector<double> expected;
    for (std::size_t i = 0; i < static_cast<std::size_t>(mine); ++i)
      expected.push_back(ranks * own[first + i] + 1000.0 * ranks * (ranks - 1) / 2);
    for (const bool in_place : {false, true}) {
      Arena arena("test", 8 * (2 * total(counts) + 100));
      const auto all = arena.take<double>(total(counts));
      const View1<double> part =
          in_place ? View1<double>(all.data() + first, static_cast<std::size_t>(mine))
                   : arena.take<double>(mine);
      set_values(all, input<double>(world->rank(), total(counts)));
      world->reduce_scatter(Exec(), part, all, counts, "test");
      EXPECT_EQ(values_of(part), expected) << unit << (in_place ? " in place" : "");
    }
  }
}

/// Rank a sends count(a, b) elements to rank b; some ranks send nothing to some others.
TEST_P(Verbs, AllToAllExchangesUnevenParts) {
  const auto world = communicator(GetParam());
  const int ranks = world->size(), rank = world->rank();
  for (const std::int64_t unit : {0, 3, 30'000}) {
    const auto count = [&](int from, int to) {
      return (from + 2 * to) % 3 == 1 ? 0 : unit * (1 + (from + to) % 2) + from;
    };
    Counts sent, received;
    std::vector<float> given, expected;
    for (int r = 0; r < ranks; ++r) {
      sent.push_back(count(rank, r));
      received.push_back(count(r, rank));
      for (std::int64_t i = 0; i < count(rank, r); ++i)
        given.push_back(static_cast<float>(10000 * rank + 1000 * r + i % 1000));
      for (std::int64_t i = 0; i < count(r, rank); ++i)
        expected.push_back(static_cast<float>(10000 * r + 1000 * rank + i % 1000));
    }
    Arena arena("test", 4 * (total(sent) + total(received) + 100));
    const auto mine = arena.take<float>(total(sent)), all = arena.take<float>(total(received));
    set_values(mine, given);
    set_values(all, std::vector<float>(expected.size(), -1));
    world->all_to_all<float>(Exec(), all, received, mine, sent, "test");
    EXPECT_EQ(values_of(all), expected) << unit;
    EXPECT_EQ(values_of(mine), given) << unit;
    Counts numbers(sent.size());
    world->all_to_all(numbers, sent, "numbers on hosts");
    EXPECT_EQ(numbers, received);
  }
}

TEST_P(Verbs, SumsFollowRankOrderForAnyLength) {
  const auto world = communicator(GetParam());
  const std::int64_t n = 100'003;
  std::vector<float> expected = rounding_input(0, n);
  for (int r = 1; r < world->size(); ++r) {
    const auto x = rounding_input(r, n);
    for (std::size_t i = 0; i < x.size(); ++i) expected[i] += x[i];
  }
  Arena arena("test", 4 * n + 64);
  const auto x = arena.take<float>(n);
  for (const std::int64_t length : {std::int64_t{1}, std::int64_t{63}, std::int64_t{5'000}, n}) {
    set_values(x, rounding_input(world->rank(), n));
    for (std::int64_t begin = 0; begin < n; begin += length) {
      if (length == 1 && begin > 100) break;
      const auto size = static_cast<std::size_t>(std::min(length, n - begin));
      world->all_reduce(Exec(), View1<float>(x.data() + begin, size), Reduction::sum, "test");
    }
    const auto got = values_of(x);
    const std::size_t compared = length == 1 ? 100 : expected.size();
    EXPECT_EQ(std::memcmp(got.data(), expected.data(), compared * sizeof(float)), 0) << length;
  }
  set_values(x, rounding_input(world->rank(), n));
  Counts counts;
  for (int r = 0; r < world->size(); ++r)
    counts.push_back(layout::split(n, world->size(), r).extent);
  const auto mine = layout::split(n, world->size(), world->rank());
  const View1<float> part(x.data() + mine.offset, static_cast<std::size_t>(mine.extent));
  world->reduce_scatter(Exec(), part, x, counts, "test");
  EXPECT_EQ(std::memcmp(values_of(part).data(), expected.data() + mine.offset,
                        static_cast<std::size_t>(mine.extent) * sizeof(float)),
            0);
}

TEST_P(Verbs, ReductionsGiveMaximumAndMinimum) {
  const auto world = communicator(GetParam());
  Arena arena("test", 1024);
  const auto x = arena.take<double>(3);
  set_values(x, input<double>(world->rank(), 3));
  world->all_reduce(Exec(), x, Reduction::maximum, "test");
  EXPECT_EQ(values_of(x), input<double>(world->size() - 1, 3));
  set_values(x, input<double>(world->rank(), 3));
  world->all_reduce(Exec(), x, Reduction::minimum, "test");
  EXPECT_EQ(values_of(x), input<double>(0, 3));
}

/// A transport has no channels.
class Channels : public Verbs {};
INSTANTIATE_TEST_SUITE_P(Ways, Channels, ::testing::Values(Way::by_default, Way::through_the_host),
                         name);

TEST_P(Channels, OvertakeEachOtherAndDeliverToTheSender) {
  const auto world = communicator(GetParam());
  const int right = (world->rank() + 1) % world->size();
  const int left = (world->rank() + world->size() - 1) % world->size();
  for (const std::int64_t n : {std::int64_t{0}, std::int64_t{7}, std::int64_t{300'000}}) {
    Arena arena("test", 4 * 4 * (n + 32));
    std::vector<View1<float>> out, in;
    std::vector<Request> sends, receives;
    for (int channel = 0; channel < 2; ++channel) {
      out.push_back(arena.take<float>(n));
      in.push_back(arena.take<float>(n));
      set_values(out.back(), input<float>(10 * world->rank() + channel, n));
    }
    const int last = world->channels() - 1;
    receives.push_back(world->start_receive(Exec(), in[1], left, last));
    sends.push_back(world->start_send(Exec(), out[0], right, 0));
    sends.push_back(world->start_send(Exec(), out[1], right, last));
    receives.push_back(world->start_receive(Exec(), in[0], left, 0));
    world->wait(receives[0], "test");
    while (!world->done(receives[1])) {
    }
    for (Request& request : sends) world->wait(request, "test");
    for (int channel = 0; channel < 2; ++channel)
      EXPECT_EQ(values_of(in[static_cast<std::size_t>(channel)]),
                input<float>(10 * left + channel, n));
  }
}

TEST_P(Verbs, BroadcastGivesTheRootsDataToAll) {
  const auto world = communicator(GetParam());
  Arena arena("test", 4 * 1024);
  const auto x = arena.take<float>(1000);
  set_values(x, input<float>(world->rank(), 1000));
  world->broadcast(Exec(), x, world->size() - 1, "test");
  EXPECT_EQ(values_of(x), input<float>(world->size() - 1, 1000));
}

/// A wait on one communicator advances the sums of another, which other ranks may wait for.
TEST_P(Verbs, WaitingAdvancesOtherCommunicators) {
  const auto first = communicator(GetParam());
  const auto second = communicator(GetParam());
  const std::int64_t n = 200'000;
  Arena arena("test", 2 * 8 * n + 128);
  const auto x = arena.take<double>(n);
  const auto y = arena.take<double>(n);
  set_values(x, std::vector<double>(static_cast<std::size_t>(n), 1.0));
  set_values(y, std::vector<double>(static_cast<std::size_t>(n), 2.0));
  Request sum_x = first->start_all_reduce(Exec(), x, Reduction::sum);
  Request sum_y = second->start_all_reduce(Exec(), y, Reduction::sum);
  // Half of the ranks wait for the first sum first, the others for the second.
  if (first->rank() % 2 == 0) {
    first->wait(sum_x, "test");
    second->wait(sum_y, "test");
  } else {
    second->wait(sum_y, "test");
    first->wait(sum_x, "test");
  }
  EXPECT_EQ(values_of(x), std::vector<double>(static_cast<std::size_t>(n), first->size()));
  EXPECT_EQ(values_of(y), std::vector<double>(static_cast<std::size_t>(n), 2.0 * first->size()));
}

TEST(Traffic, CountsThePayloadOfEveryVerb) {
  const auto world = communicator(Way::by_default);
  const bool several = world->size() > 1;
  Arena arena("test", 8192);
  const auto x = arena.take<double>(100);
  const auto all = arena.take<double>(10 * world->size());
  const auto others = arena.take<double>(10 * world->size());
  const View1<double> mine(all.data() + 10 * world->rank(), 10);
  const Counts counts(static_cast<std::size_t>(world->size()), 10);
  const auto once = [&] {
    world->all_reduce(Exec(), x, Reduction::sum, "test");
    world->all_gather(Exec(), all, mine, counts, "test");
    world->reduce_scatter(Exec(), mine, all, counts, "test");
    world->all_to_all<double>(Exec(), others, counts, all, counts, "test");
    world->broadcast(Exec(), x, 0, "test");
    Request in = world->start_receive(Exec(), x, world->rank(), 1);
    Request out = world->start_send(Exec(), mine, world->rank(), 1);
    world->wait(in, "test");
    world->wait(out, "test");
    world->barrier("the control plane does not count");
  };
  once();
  once();
  const std::int64_t operations = several ? 2 : 0;
  EXPECT_EQ(world->traffic(Verb::all_reduce), (Traffic{operations, operations * 800}));
  EXPECT_EQ(world->traffic(Verb::all_gather),
            (Traffic{operations, operations * 80 * world->size()}));
  EXPECT_EQ(world->traffic(Verb::reduce_scatter),
            (Traffic{operations, operations * 80 * world->size()}));
  EXPECT_EQ(world->traffic(Verb::all_to_all),
            (Traffic{operations, operations * 80 * world->size()}));
  EXPECT_EQ(world->traffic(Verb::broadcast), (Traffic{operations, operations * 800}));
  EXPECT_EQ(world->traffic(Verb::send), (Traffic{2, 160}));
  EXPECT_EQ(world->traffic().operations, 5 * operations + 2);
  world->reset_traffic();
  EXPECT_EQ(world->traffic(), Traffic());
}

TEST(Communicator, LeftOutOperationsChangeNothing) {
  const auto world = communicator(Way::by_default);
  world->leave_out();
  Arena arena("test", 1024);
  const auto x = arena.take<double>(3);
  set_values(x, input<double>(world->rank(), 3));
  world->all_reduce(Exec(), x, Reduction::sum, "test");
  Request none = world->start_receive(Exec(), x, 0, 0);
  EXPECT_TRUE(world->done(none));
  EXPECT_EQ(values_of(x), input<double>(world->rank(), 3));
  EXPECT_EQ(world->traffic(), Traffic());
  EXPECT_EQ(world->all_reduce<std::int64_t>(1, Reduction::sum, "control plane"), world->size());
}

TEST(Communicator, RejectsInvalidCounts) {
  const auto world = communicator(Way::by_default);
  Arena arena("test", 1024);
  const auto all = arena.take<float>(10);
  const Counts few(static_cast<std::size_t>(world->size()) + 1, 1);
  EXPECT_THROW(world->all_gather(Exec(), all, all, few, "test"), Error);
  const Counts wrong(static_cast<std::size_t>(world->size()), 11);
  EXPECT_THROW(world->reduce_scatter(Exec(), all, all, wrong, "test"), Error);
  EXPECT_THROW(world->all_to_all<float>(Exec(), all, wrong, all, wrong, "test"), Error);
  EXPECT_THROW(world->all_to_all<float>(Exec(), all, few, all, few, "test"), Error);
  EXPECT_THROW(world->start_send(Exec(), all, world->size(), 0), Error);
  EXPECT_THROW(world->start_send(Exec(), all, 0, world->channels()), Error);
  EXPECT_THROW(message_count(std::int64_t{1} << 31), Error);
}

/// Two-byte elements, more than an int can count. Only the type's size is tested, without
/// allocating.
TEST(MessageBlock, HasTheSizeOfItsElements) {
  for (const std::int64_t n : {std::int64_t{5}, (std::int64_t{1} << 31) - 1, std::int64_t{1} << 31,
                               (std::int64_t{1} << 33) + 12'345}) {
    const MessageBlock block(n, datatype<Bf16>());
    EXPECT_EQ(block.count(), n < (std::int64_t{1} << 31) ? n : 1);
    MPI_Count bytes = 0;
    MPI_Type_size_x(block.type(), &bytes);
    EXPECT_EQ(bytes * block.count(), 2 * n);
    MPI_Count first = -1;
    MPI_Count extent = 0;
    MPI_Type_get_true_extent_x(block.type(), &first, &extent);
    EXPECT_EQ(first, 0);
    EXPECT_EQ(extent * block.count(), 2 * n) << "a gap";
  }
}

TEST(Grid, GroupsReplicasAndTiedEmbeddings) {
  Communicator& world = runtime().world();
  const int ranks = world.size();
  for (int pipeline = 1; pipeline <= ranks; ++pipeline) {
    if (ranks % pipeline != 0) continue;
    Grid grid(world, layout::ProcessGrid(
                         {{Axis::pipeline, pipeline}, {Axis::data, ranks / pipeline}}, ranks));
    EXPECT_EQ(grid.model().size(), pipeline);
    EXPECT_EQ(grid.model().rank(), world.rank() % pipeline);
    EXPECT_EQ(grid.model().world_rank(0), world.rank() / pipeline * pipeline);
    const int at = grid.coordinates()[Axis::pipeline];
    const bool end = pipeline > 1 && (at == 0 || at == pipeline - 1);
    EXPECT_EQ(grid.embedding().size(), end ? 2 : 1);
    EXPECT_EQ(grid.embedding().rank(), end && at > 0 ? 1 : 0);
    const auto sum = grid.embedding().all_reduce<std::int64_t>(at, Reduction::sum, "test");
    EXPECT_EQ(sum, end ? pipeline - 1 : at);
  }
}

TEST(Grid, VPlacementPutsBothEndsOnTheFirstRank) {
  Communicator& world = runtime().world();
  const layout::StageMap stages{world.size(), 2, StagePlacement::v};
  Grid grid(world, layout::ProcessGrid({{Axis::pipeline, world.size()}}, world.size()), stages);
  EXPECT_EQ(grid.embedding().size(), 1);
}

TEST(Grid, AxisOrderDeterminesNeighbours) {
  Communicator& world = runtime().world();
  const int tensor = world.size() % 2 == 0 ? 2 : 1, data = world.size() / tensor;
  Grid grid(world, layout::ProcessGrid({{Axis::data, data}, {Axis::tensor, tensor}}, world.size()));
  EXPECT_EQ(grid.communicator(Axis::data).rank(), world.rank() % data);
  EXPECT_EQ(grid.communicator(Axis::tensor).rank(), world.rank() / data);
  for (const Axis axis : {Axis::data, Axis::tensor}) {
    Communicator& group = grid.communicator(axis);
    const auto first = static_cast<std::int64_t>(group.world_rank(0));
    for (int i = 0; i < group.size(); ++i)
      EXPECT_EQ(group.world_rank(i), first + i * (axis == Axis::data ? 1 : data));
  }
  EXPECT_EQ(grid.model().size(), tensor);
  EXPECT_EQ(grid.model().world_rank(0), world.rank() % data);
}

}  // namespace
}  // namespace trireme::grid
