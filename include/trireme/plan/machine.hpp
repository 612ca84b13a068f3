#pragma once

#include <trireme/base/types.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace trireme::plan {

/// Where kernels run.
enum class DeviceKind : std::uint8_t { host, cuda, hip, sycl };
/// Implementation of matrix products: Trireme's own kernels or a library.
enum class ProductLibrary : std::uint8_t { portable, onednn, cublaslt };

/// "host", "cuda", "hip", "sycl".
std::string_view name_of(DeviceKind);
/// "portable", "onednn", "cublaslt".
std::string_view name_of(ProductLibrary);

/// All facts about a machine and its installation that a plan depends on. Made by
/// installation::this_machine() for the running build, or by load_machine() from a file.
struct Machine {
  struct Device {
    DeviceKind kind = DeviceKind::host;
    Bytes memory = 0;  ///< of one device, all of which one rank may use; 0: not known
    bool operator==(const Device&) const = default;
  };
  struct Node {
    std::int64_t devices = 0;  ///< devices of a node, one rank on each; 0: not known
    bool operator==(const Node&) const = default;
  };
  struct Software {
    ProductLibrary products = ProductLibrary::portable;
    /// The last in the order portable, tensor_cores, cudnn that attention can use; never automatic.
    AttentionKind attention = AttentionKind::portable;
    TransportKind transport = TransportKind::mpi;  ///< between devices; never automatic
    bool operator==(const Software&) const = default;
  };

  std::string name;
  std::string file;  ///< "": the running build
  Device device;
  Node node;
  Software software;
  /// Devices have memory of their own, so that [parallel] offload has an effect. A test on a host
  /// may set it.
  bool own_memory = false;
  /// Kernels divide their work as on a device. Also true of builds that test this on a host.
  bool device_kernels = false;

  bool on_device() const { return device.kind != DeviceKind::host; }
  /// Sets own_memory and device_kernels by the kind of device.
  void set_kind(DeviceKind kind);

  /// Elements of the logits that are computed at a time.
  std::int64_t logit_elements() const;
  /// Bytes that matrix products use in addition to their operands, without widened operands.
  Bytes product_workspace() const;

  /// How a sentence refers to it: "this installation", "h100 (inputs/machines/h100.toml)".
  std::string called() const;
  bool operator==(const Machine&) const = default;
};

}  // namespace trireme::plan

namespace trireme {
template <>
std::span<const std::string_view> names<plan::DeviceKind>();
template <>
std::span<const std::string_view> names<plan::ProductLibrary>();
}  // namespace trireme
