#include <trireme/tensor/device.hpp>
#include <trireme/tensor/streams.hpp>

#include <cstdio>

namespace trireme {

#ifdef TRIREME_HAS_STREAMS
namespace {

std::string hexadecimal(const char* bytes, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned char>(bytes[i]));
    out += two;
  }
  return out;
}

}  // namespace
#endif

#if defined(KOKKOS_ENABLE_CUDA)

int visible_devices() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

std::optional<DeviceInfo> device_info() {
  int device = 0;
  cudaDeviceProp properties{};
  std::size_t free = 0;
  std::size_t all = 0;
  streams::expect_success(cudaGetDevice(&device), "querying the device");
  streams::expect_success(cudaGetDeviceProperties(&properties, device), "querying the device");
  streams::expect_success(cudaMemGetInfo(&free, &all), "querying the device's memory");
  return DeviceInfo{properties.name,
                    hexadecimal(properties.uuid.bytes, sizeof properties.uuid.bytes),
                    static_cast<Bytes>(all), static_cast<Bytes>(free)};
}

#elif defined(KOKKOS_ENABLE_HIP)

int visible_devices() {
  int count = 0;
  return hipGetDeviceCount(&count) == hipSuccess ? count : 0;
}

std::optional<DeviceInfo> device_info() {
  int device = 0;
  hipDeviceProp_t properties{};
  hipUUID id{};
  std::size_t free = 0;
  std::size_t all = 0;
  streams::expect_success(hipGetDevice(&device), "querying the device");
  streams::expect_success(hipGetDeviceProperties(&properties, device), "querying the device");
  streams::expect_success(hipDeviceGetUuid(&id, device), "querying the device");
  streams::expect_success(hipMemGetInfo(&free, &all), "querying the device's memory");
  return DeviceInfo{properties.name, hexadecimal(id.bytes, sizeof id.bytes),
                    static_cast<Bytes>(all), static_cast<Bytes>(free)};
}

#else

int visible_devices() {
  return 0;
}

std::optional<DeviceInfo> device_info() {
  return std::nullopt;
}

#endif

}  // namespace trireme
