#include <trireme/grid/threads.hpp>

#include <gtest/gtest.h>

#include <sched.h>

#include "support/runtime.hpp"

namespace trireme::grid {
namespace {

TEST(Threads, BoundRanksUseTheirCoresAndUnboundRanksShare) {
  EXPECT_EQ(threads_among({"1111"}, 0), 4);
  EXPECT_EQ(threads_among({"1100", "0011"}, 1), 2) << "bound by the launcher";
  EXPECT_EQ(threads_among({"1111", "1111", "1111"}, 2), 1) << "not bound: 4 cores for 3";
  EXPECT_EQ(threads_among({"11111111", "11111111"}, 0), 4);
  EXPECT_EQ(threads_among({"11", "11", "11", "11"}, 0), 1) << "more ranks than cores";
  EXPECT_EQ(threads_among({"111000", "000111", "000111"}, 0), 3);
  EXPECT_EQ(threads_among({"111000", "000111", "000111"}, 1), 1);
}

TEST(Threads, CoresFollowTheProcessAffinity) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  const std::string all = bound_cores();
  const std::size_t last = all.size() - 1;
  EXPECT_EQ(all[last], '1');
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(last, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(bound_cores(), std::string(last, '0') + '1');
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
  EXPECT_EQ(bound_cores(), all);
}

TEST(Threads, KernelsUseTheThreadsOfTheRank) {
  if (!ranks_have_threads) GTEST_SKIP() << "one thread: this build's Kokkos is " << Exec::name();
  const char* const said = std::getenv("OMP_NUM_THREADS");
  const int expected = said ? std::atoi(said) : threads_of_rank();
  EXPECT_EQ(static_cast<int>(Exec().concurrency()), expected);
}

}  // namespace
}  // namespace trireme::grid
