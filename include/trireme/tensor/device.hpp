#pragma once

#include <trireme/base/types.hpp>

#include <optional>
#include <string>

namespace trireme {

/// Devices that this process may choose from, without starting one; 0 where kernels run on the host
/// and where the run time cannot tell.
int visible_devices();

/// The device that Exec runs on.
struct DeviceInfo {
  std::string name;  ///< "NVIDIA H100 80GB HBM3"
  std::string id;    ///< UUID, the same for every process that uses the device
  Bytes memory = 0;
  Bytes free = 0;  ///< at the time of the call
};
/// Nothing where kernels run on the host, or SYCL knows it alone. After Kokkos was started.
std::optional<DeviceInfo> device_info();

}  // namespace trireme
