#pragma once

#include <trireme/base/types.hpp>

#include <optional>
#include <string>

namespace trireme {

/// Number of devices that this process may choose from. Starts no device. 0 where kernels run on
/// the host or through SYCL, or if the runtime reports an error.
int visible_devices();

/// The device that Exec runs on.
struct DeviceInfo {
  std::string name;  ///< "NVIDIA H100 80GB HBM3"
  std::string id;    ///< UUID, the same for every process that uses the device
  Bytes memory = 0;
  Bytes free = 0;  ///< at the time of the call
};
/// Empty where kernels run on the host or through SYCL. Call it after Kokkos is initialized.
std::optional<DeviceInfo> device_info();

}  // namespace trireme
