#include <trireme/installation/this_installation.hpp>

#include <gtest/gtest.h>

namespace trireme::installation {
namespace {

TEST(Driver, IsLinkedOnlyForNvidiaDevices) {
  EXPECT_STREQ(driver_library(plan::DeviceKind::cuda), "libcuda.so.1");
  for (const auto kind : {plan::DeviceKind::host, plan::DeviceKind::hip, plan::DeviceKind::sycl})
    EXPECT_EQ(driver_library(kind), nullptr) << name_of(kind);
}

TEST(Driver, MissingDriverIsReportedWithNodeAndRemedy) {
  EXPECT_EQ(missing_driver("libc.so.6"), "");
  const std::string message = missing_driver("libcuda_that_nobody_has.so.1");
  EXPECT_EQ(message.find("no NVIDIA driver was found on "), 0u) << message;
  for (const char* part : {"libcuda_that_nobody_has.so.1", "kernels run on NVIDIA devices",
                           "start the command in a job on a node with devices"})
    EXPECT_NE(message.find(part), std::string::npos) << part << " is not in: " << message;
}

}  // namespace
}  // namespace trireme::installation
