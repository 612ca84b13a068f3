// Copies between a device and the host.
#include <trireme/tensor/copy.hpp>

#include <Kokkos_Core.hpp>

#include <support/device_array.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace trireme {
namespace {

std::vector<std::string>& order() {
  static std::vector<std::string> one;
  return one;
}

/// A copy to memory that is not page-locked holds the host inside the device's runtime until the
/// work before it is complete; nobody could tell where a rank hangs that waits there.
TEST(CopyToHost, StartsAfterTheWait) {
  const testing::DeviceArray<float> from(std::vector<float>{1, 2, 3});
  std::vector<float> to(3);
  const std::int64_t waits = fence_count();
  order().clear();
  set_waiter([](const std::function<bool()>& done, const char* reason) {
    while (!done()) {
    }
    order().emplace_back(reason);
  });
  Kokkos::Tools::Experimental::set_begin_deep_copy_callback(
      [](Kokkos::Profiling::SpaceHandle, const char*, const void*, Kokkos::Profiling::SpaceHandle,
         const char*, const void*, std::uint64_t) { order().emplace_back("copy"); });
  copy_to_host<float>(Exec{}, to, from.flat(), "a wait");
  Kokkos::Tools::Experimental::set_begin_deep_copy_callback(nullptr);
  set_waiter({});
  EXPECT_EQ(order(), (std::vector<std::string>{"a wait", "copy"}));
  EXPECT_EQ(to, (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(fence_count() - waits, 1);
}

}  // namespace
}  // namespace trireme
