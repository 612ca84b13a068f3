#include <trireme/grid/pause.hpp>
#include <trireme/grid/threads.hpp>

#include <gtest/gtest.h>

#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "support/runtime.hpp"

namespace trireme::grid {
namespace {

TEST(Pause, CountsRanksThatShareCores) {
  const std::vector<std::int64_t> groups{7, 7, 9, 7};
  EXPECT_TRUE(outnumber(groups, 0, 2)) << "three on two cores";
  EXPECT_FALSE(outnumber(groups, 3, 3));
  EXPECT_FALSE(outnumber(groups, 2, 1)) << "bound alone, or on another node";
}

TEST(Pause, SleepsOnlyIfRanksOutnumberCores) {
  const std::string cores = bound_cores();
  const bool crowded = testing::runtime().ranks() > std::ranges::count(cores, '1');
  const auto sleeps = [] {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
  };
  Pause pause;
  for (int i = 0; i < 100; ++i) pause();
  const auto before = sleeps();
  for (int i = 0; i < 100; ++i) pause();
  // The kernel counts a few of them differently if it interrupts the rank.
  if (crowded)
    EXPECT_GT(sleeps() - before, 50);
  else
    EXPECT_LT(sleeps() - before, 50);
}

}  // namespace
}  // namespace trireme::grid
