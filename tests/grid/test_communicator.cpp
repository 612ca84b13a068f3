#include <trireme/grid/runtime.hpp>
#include <trireme/tensor/arena.hpp>

#include "support/runtime.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace trireme::grid {
namespace {

using trireme::testing::runtime;

TEST(Communicator, AllReduceSumsInPlaceOnEveryRank) {
  Communicator& world = runtime().world();
  Arena arena("test", 4096);
  auto x = arena.take<double>(100);
  for (int i = 0; i < 100; ++i) x(i) = i + world.rank();
  Request request = world.start_all_reduce(Exec(), x, Reduction::sum);
  world.progress();
  world.wait(request, "test");
  EXPECT_FALSE(request.active());
  const double ranks = world.size();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(x(i), ranks * i + ranks * (ranks - 1) / 2);
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
  if (world.size() % 2 != 0) GTEST_SKIP() << "needs an even number of ranks, has " << world.size();
  Grid grid(world, layout::ProcessGrid(world.size() / 2, 1, 2, world.size()));
  EXPECT_EQ(grid.communicator(Axis::data).size(), world.size() / 2);
  EXPECT_EQ(grid.communicator(Axis::pipeline).size(), 1);
  EXPECT_EQ(grid.communicator(Axis::tensor).size(), 2);
  EXPECT_EQ(grid.communicator(Axis::data).rank(), grid.coordinates().data);
  EXPECT_EQ(grid.communicator(Axis::tensor).rank(), grid.coordinates().tensor);
  const auto sum = grid.communicator(Axis::tensor)
                       .all_reduce<std::int64_t>(world.rank(), Reduction::sum, "test");
  EXPECT_EQ(sum, 4 * grid.coordinates().data + 1);
}

TEST(Runtime, AnErrorOfOneRankIsThrownOnAllAndReportedOnce) {
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
