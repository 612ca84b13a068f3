#include <trireme/grid/runtime.hpp>
#include <trireme/tensor/arena.hpp>
#include <trireme/tensor/fence.hpp>

#include "support/device_access.hpp"
#include "support/runtime.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace trireme::grid {
namespace {

using trireme::testing::runtime;
using trireme::testing::set_values;
using trireme::testing::values_of;

TEST(Communicator, AllReduceSumsInPlaceOnEveryRank) {
  const auto world = runtime().world().split(0, runtime().rank(), "test");
  Arena arena("test", 4096);
  auto x = arena.take<double>(100);
  const double ranks = world->size();
  std::vector<double> mine(100);
  std::vector<double> expected(100);
  for (std::size_t i = 0; i < 100; ++i) {
    mine[i] = static_cast<double>(i) + world->rank();
    expected[i] = ranks * static_cast<double>(i) + ranks * (ranks - 1) / 2;
  }
  for (const bool staged : {false, true}) {
    SCOPED_TRACE(staged ? "through the host" : "as by default");
    if (staged) world->stage_through_host();
    set_values(x, mine);
    Request request = world->start_all_reduce(Exec(), x, Reduction::sum);
    world->progress();
    world->wait(request, "test");
    EXPECT_FALSE(request.active());
    EXPECT_EQ(values_of(x), expected);
  }
}

TEST(Communicator, ConcurrentStagedTransfersHaveSeparateBuffers) {
  const auto world = runtime().world().split(0, runtime().rank(), "test");
  world->stage_through_host();
  Arena arena("test", 4096);
  for (int round = 0; round < 2; ++round) {
    std::vector<View1<double>> views;
    std::vector<Request> requests(3);
    for (int k = 0; k < 3; ++k) {
      views.push_back(arena.take<double>(10 + k));
      set_values(views.back(), std::vector<double>(static_cast<std::size_t>(10 + k), k + 1.0));
    }
    const std::int64_t waits = fence_count();
    for (std::size_t k = 0; k < 3; ++k)
      requests[k] = world->start_all_reduce(Exec(), views[k], Reduction::sum);
    for (Request& request : requests) world->wait(request, "test");
    if (world->size() > 1) {
      EXPECT_GE(fence_count() - waits, 3) << "results are on the device";
    }
    for (int k = 0; k < 3; ++k)
      EXPECT_EQ(values_of(views[static_cast<std::size_t>(k)]),
                std::vector<double>(static_cast<std::size_t>(10 + k), (k + 1.0) * world->size()));
    arena.release_to(0);
  }
}

TEST(Communicator, ControlPlaneVerbsAgreeOnAllRanks) {
  Communicator& world = runtime().world();
  EXPECT_EQ(world.all_reduce<std::int64_t>(world.rank(), Reduction::maximum, "test"),
            world.size() - 1);
  EXPECT_EQ(world.all_reduce<std::int64_t>(world.rank() + 5, Reduction::minimum, "test"), 5);
  std::vector<std::int64_t> expected(static_cast<std::size_t>(world.size()));
  std::iota(expected.begin(), expected.end(), 10);
  EXPECT_EQ(world.all_gather(10 + world.rank(), "test"), expected);
  std::byte value{static_cast<unsigned char>(world.rank() == world.size() - 1 ? 42 : 0)};
  world.broadcast({&value, 1}, world.size() - 1, "test");
  EXPECT_EQ(value, std::byte{42});
  const auto strings =
      world.gather(std::string(static_cast<std::size_t>(world.rank()), 'x'), 0, "test");
  if (world.rank() == 0) {
    ASSERT_EQ(static_cast<int>(strings.size()), world.size());
    for (std::size_t r = 0; r < strings.size(); ++r) EXPECT_EQ(strings[r], std::string(r, 'x'));
  } else {
    EXPECT_TRUE(strings.empty());
  }
}

TEST(Communicator, AxesGroupTheRanksOfTheProcessGrid) {
  Communicator& world = runtime().world();
  const int tensor = world.size() % 2 == 0 ? 2 : 1;
  const int data = world.size() / tensor;
  Grid grid(world, layout::ProcessGrid({{Axis::tensor, tensor}, {Axis::data, data}}, world.size()));
  EXPECT_EQ(grid.communicator(Axis::data).size(), data);
  EXPECT_EQ(grid.communicator(Axis::pipeline).size(), 1);
  EXPECT_EQ(grid.communicator(Axis::tensor).size(), tensor);
  EXPECT_EQ(grid.communicator(Axis::data).rank(), grid.coordinates()[Axis::data]);
  EXPECT_EQ(grid.communicator(Axis::tensor).rank(), grid.coordinates()[Axis::tensor]);
  const auto sum = grid.communicator(Axis::tensor)
                       .all_reduce<std::int64_t>(world.rank(), Reduction::sum, "test");
  const int first = tensor * grid.coordinates()[Axis::data];
  EXPECT_EQ(sum, tensor == 2 ? 2 * first + 1 : first);
}

TEST(Runtime, ErrorOfOneRankIsThrownOnAllAndReportedOnce) {
  const Rank guilty = runtime().ranks() - 1;
  const auto fails = [&] {
    if (runtime().rank() == guilty) throw UsageError("bad deck");
  };
  try {
    runtime().together(fails);
    ADD_FAILURE() << "no error";
  } catch (const SharedError& e) {
    EXPECT_EQ(runtime().rank(), guilty);
    EXPECT_STREQ(e.what(), "bad deck");
    EXPECT_EQ(e.code(), ExitCode::usage);
  } catch (const SilentError& e) {
    EXPECT_NE(runtime().rank(), guilty);
    EXPECT_EQ(e.code(), ExitCode::usage);
  }
  runtime().together([] {});
}

}  // namespace
}  // namespace trireme::grid
