#pragma once

#include <trireme/base/types.hpp>
#include <trireme/deck/config.hpp>

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

/// The axis whose ranks follow those of a tensor group, so that more of them are on the same node.
enum class SecondAxis : std::uint8_t {
  pipeline,  ///< Trireme
  data       ///< Megatron-LM
};
/// "pipeline", "data".
std::string_view name_of(SecondAxis);

/// All facts about a machine and its installation that a plan depends on. Made by
/// installation::this_machine() for the running build, or by load_machine() from a file. Speeds of
/// 0 are not known; sizes can then be planned, but no times (time_mistake()).
struct Machine {
  struct Device {
    DeviceKind kind = DeviceKind::host;
    Bytes memory = 0;  ///< of one device, all of which one rank may use; 0: not known
    // Matrix products, FLOP/s: the dense peak of each type.
    double peak_fp64 = 0;
    double peak_fp32 = 0;
    double peak_tf32 = 0;
    double peak_bf16 = 0;
    double peak_fp16 = 0;
    double peak_fp8 = 0;
    double bandwidth = 0;              ///< of memory, bytes/s
    std::int64_t multiprocessors = 1;  ///< each computes one tile of a product at a time
    double product_efficiency =
        0.8;  ///< share of the peak that a long product of whole tiles reaches
    double memory_efficiency = 0.8;     ///< share of the bandwidth that long kernels reach
    double attention_efficiency = 0.5;  ///< share of the peak that attention's products reach
    double attention_backward = 0;      ///< the same of its gradient; 0: estimated from it
    double tile_overhead = 0;           ///< start and end of a tile, as so many elements of K
    double launch = 0;                  ///< shortest time of a kernel, seconds
    bool operator==(const Device&) const = default;
  };
  /// Rates of kernels that compute more than they move, as measured: bytes/s that they read and
  /// write; 0: that of the device's memory.
  struct Kernels {
    double norm = 0;
    double activation = 0;
    double rotary = 0;
    double residual = 0;
    double embedding = 0;
    double loss = 0;    ///< of the logits
    double update = 0;  ///< of the optimizer and the gradient's norm
    double random = 0;  ///< numbers per second that dropout draws; 0: they take no time
    bool operator==(const Kernels&) const = default;
  };
  struct Node {
    std::int64_t devices = 0;     ///< devices of a node, one rank on each; 0: not known
    std::int64_t processors = 0;  ///< ranks of a node that compute at the same time; 0: all
    double link_bandwidth = 0;  ///< between devices of a node: bytes/s of a device in one direction
    double link_efficiency = 0.8;  ///< share of the bandwidth that collectives reach in training
    double link_latency = 0;       ///< of a message or collective, seconds
    bool operator==(const Node&) const = default;
  };
  struct Network {
    double bandwidth = 0;     ///< of a node in one direction, bytes/s
    double efficiency = 0.8;  ///< share that tensor groups and messages between stages reach
    double gradient_efficiency = 0.6;  ///< share that sums over the data axis reach
    double latency = 0;                ///< of a message between nodes, seconds
    bool operator==(const Network&) const = default;
  };
  struct Software {
    std::string name = "Trireme";
    ProductLibrary products = ProductLibrary::portable;
    /// The last in the order portable, tensor_cores, cudnn that attention can use; never automatic.
    AttentionKind attention = AttentionKind::portable;
    TransportKind transport = TransportKind::mpi;  ///< between devices; never automatic
    // Differences of other programs. The defaults are those of Trireme.
    SecondAxis second_axis = SecondAxis::pipeline;
    bool fused_attention = true;  ///< false: all S² numbers of a head go through memory
    bool scatter_gather = true;   ///< between stages, a tensor rank sends only its part
    /// The product that computes a weight's gradient also adds it to those of other micro-batches.
    bool fused_accumulation = true;
    /// Full recomputation also computes what no gradient reads: the layer's last product and
    /// output.
    bool recomputes_unread = false;
    double traffic_ratio = 1;         ///< bytes of memory-bound kernels, relative to Trireme's
    std::int64_t gradient_bytes = 0;  ///< of a gradient; 0: those of a sum
    double tensor_overlap = 0;        ///< share of the tensor axis's messages that is hidden
    double gradient_overlap = 0;      ///< share of the data axis's sums that is hidden
    double gather_overlap = 1;        ///< share of the gathers of weights that can hide; with NCCL
    double pipeline_overlap = 1;      ///< share of the messages between stages that is hidden
    double host_per_layer = 0;        ///< host's seconds to start a layer's forward pass
    double optimizer_bytes = 0;       ///< that an update moves per parameter; 0: as Trireme
    double activation_ratio = 1;      ///< saved activations of a layer, relative to Trireme's
    /// With sequence parallelism, the gathered inputs of products are kept for their gradients.
    bool keeps_gathered = false;
    double logit_bytes = 0;  ///< that are held per logit; 0: blocks as Trireme
    double logit_traffic =
        0;              ///< bytes that a logit's kernels move, besides products; 0: as Trireme
    Bytes reserve = 0;  ///< of a device's memory for the driver and libraries
    bool operator==(const Software&) const = default;
  };

  std::string name;
  std::string file;  ///< "": the running build
  Device device;
  Kernels kernels;
  Node node;
  Network network;
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

  /// The peak of products of this type, FLOP/s; 0: not known.
  double peak(DType type, bool tf32 = false) const;
  /// Nodes that so many ranks fill; 1 if the size of a node is not known.
  std::int64_t nodes(std::int64_t ranks) const;
  /// Why the time of a run with this precision on so many ranks cannot be predicted: the keys that
  /// are missing; "" if it can.
  std::string time_mistake(const deck::PrecisionConfig& precision, std::int64_t ranks) const;

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
template <>
std::span<const std::string_view> names<plan::SecondAxis>();
}  // namespace trireme
