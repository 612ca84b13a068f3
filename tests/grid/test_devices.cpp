#include <trireme/grid/devices.hpp>

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace trireme::grid {
namespace {

std::vector<RankDevice> two_nodes_of_two() {
  return {{"alpha", "H100", "a0"},
          {"alpha", "H100", "a1"},
          {"beta10", "H100", "b1"},
          {"beta10", "H100", "b0"}};
}

TEST(Devices, TableNumbersTheDevicesOfEachNode) {
  EXPECT_EQ(device_table(two_nodes_of_two()),
            "  rank 0  alpha   device 0  H100\n"
            "  rank 1  alpha   device 1  H100\n"
            "  rank 2  beta10  device 0  H100\n"
            "  rank 3  beta10  device 1  H100");
  EXPECT_EQ(device_table({}), "");
}

TEST(Devices, TableOfALargeJobIsTruncated) {
  std::vector<RankDevice> ranks;
  for (int r = 0; r < 100; ++r)
    ranks.push_back({"n" + std::to_string(r / 4), "A", std::to_string(r)});
  const std::string table = device_table(ranks);
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 64);
  EXPECT_NE(table.find("and 36 more ranks; 25 nodes in total"), std::string::npos) << table;
}

TEST(Devices, RanksThatShareADeviceAreNamed) {
  auto ranks = two_nodes_of_two();
  EXPECT_EQ(shared_device(ranks), "");
  ranks[3].id = "b1";
  EXPECT_EQ(
      shared_device(ranks),
      "ranks 2 and 3 use the same device of beta10 (H100), which runs 2 ranks; start one rank "
      "per device, or set [parallel] share_devices = true");
}

TEST(Devices, EnvironmentKeepsTheUsersValues) {
  const auto value = [](const char* name) {
    const char* found = std::getenv(name);
    return std::string(found != nullptr ? found : "unset");
  };
  unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "0", 1);
  set_device_environment();
  EXPECT_EQ(value("CUDA_DEVICE_MAX_CONNECTIONS"), "32");
  EXPECT_EQ(value("NCCL_LAUNCH_ORDER_IMPLICIT"), "0");
  unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  set_device_environment();
  EXPECT_EQ(value("NCCL_LAUNCH_ORDER_IMPLICIT"), "1");
  unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
  unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
}

}  // namespace
}  // namespace trireme::grid
