#pragma once

#include <trireme/base/types.hpp>
#include <trireme/deck/config.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::plan {

/// Kind of device that runs the kernels.
enum class DeviceKind : std::uint8_t { host, cuda, hip, sycl };
/// Implementation of matrix products: Trireme's own kernels or a library.
enum class ProductLibrary : std::uint8_t { portable, onednn, cublaslt };

/// "host", "cuda", "hip", "sycl".
std::string_view name_of(DeviceKind);
EnumWords enum_words(DeviceKind);
/// "portable", "onednn", "cublaslt".
std::string_view name_of(ProductLibrary);
EnumWords enum_words(ProductLibrary);

/// The axis after the tensor axis in the order of the ranks.
enum class SecondAxis : std::uint8_t {
  pipeline,  ///< as in Trireme
  data       ///< as in Megatron-LM
};
/// "pipeline", "data".
std::string_view name_of(SecondAxis);
EnumWords enum_words(SecondAxis);

/// How tokens reach their experts.
enum class ExpertDispatch : std::uint8_t {
  tokens,  ///< as in Trireme: one copy of a token for each replica with an expert of it
  /// A tensor rank sends each of its tokens once for each of its experts, to the ranks of the
  /// tensor and expert axes with these experts. If tensor ranks split every expert ([experts]
  /// split), copies travel along the expert axis and are gathered among the tensor ranks.
  copies
};
/// "tokens", "copies".
std::string_view name_of(ExpertDispatch);
EnumWords enum_words(ExpertDispatch);

/// All properties of a machine and its installation that a plan depends on. Made by
/// installation::this_machine() for the running build, or by load_machine() from a file.
/// time_mistake() names the speeds that a prediction of times needs.
struct Machine {
  struct Device {
    DeviceKind kind = DeviceKind::host;
    Bytes memory = 0;  ///< memory of one device, which one rank may use; 0: unknown
    // Peak rates of dense matrix products by type, FLOP/s.
    double peak_fp64 = 0;
    double peak_fp32 = 0;
    double peak_tf32 = 0;
    double peak_bf16 = 0;
    double peak_fp16 = 0;
    double peak_fp8 = 0;
    double bandwidth = 0;              ///< memory bandwidth, bytes/s
    std::int64_t multiprocessors = 1;  ///< each computes one tile of a product at a time
    double product_efficiency =
        0.8;  ///< share of the peak that a long product of whole tiles reaches
    double memory_efficiency = 0.8;     ///< share of the bandwidth that long kernels reach
    double attention_efficiency = 0.5;  ///< share of the peak that attention's products reach
    double attention_backward = 0;  ///< share of the peak for attention's gradient; 0: estimated
    double tile_overhead = 0;  ///< start and end of a tile, as elements of the summed dimension
    double launch = 0;         ///< time that each kernel takes in addition, seconds
    bool operator==(const Device&) const = default;
  };
  /// Measured rates of kernels other than matrix products, in bytes/s read and written; 0: the
  /// memory bandwidth is used.
  struct Kernels {
    double norm = 0;
    double activation = 0;
    double rotary = 0;
    double residual = 0;
    double embedding = 0;
    double loss = 0;    ///< loss kernels on the logits
    double update = 0;  ///< optimizer update and gradient norm
    double random = 0;  ///< random values per second for dropout; 0: they take no time
    bool operator==(const Kernels&) const = default;
  };
  struct Node {
    std::int64_t devices = 0;      ///< devices of a node, one rank on each; 0: unknown
    std::int64_t processors = 0;   ///< ranks of a node that compute at the same time; 0: all
    double link_bandwidth = 0;     ///< between devices of a node, bytes/s, one direction
    double link_efficiency = 0.8;  ///< share of the bandwidth that collectives reach in training
    double link_latency = 0;       ///< seconds per message or collective
    bool operator==(const Node&) const = default;
  };
  struct Network {
    double bandwidth = 0;  ///< bandwidth of a node in one direction, bytes/s
    /// Share of the bandwidth that tensor groups and messages between stages reach.
    double efficiency = 0.8;
    /// Share of the bandwidth that sums over the data axis reach.
    double gradient_efficiency = 0.6;
    double latency = 0;  ///< seconds per message between nodes
    bool operator==(const Network&) const = default;
  };
  struct Software {
    std::string name = "Trireme";
    ProductLibrary products = ProductLibrary::portable;
    /// The last available kind in the order portable, tensor_cores, cudnn; never automatic.
    AttentionKind attention = AttentionKind::portable;
    TransportKind transport = TransportKind::mpi;  ///< between devices; never automatic
    /// Instructions that multiply bf16 on this host, such as "AMX"; empty if none or not known.
    std::string bf16;
    // Properties of other programs. The defaults describe Trireme.
    SecondAxis second_axis = SecondAxis::pipeline;
    bool fused_attention = true;  ///< false: all S² scores of a head are stored in memory
    bool scatter_gather = true;   ///< between stages, a tensor rank sends only its part
    /// The product that computes a weight's gradient also adds it to the sum over micro-batches.
    bool fused_accumulation = true;
    /// Full recomputation also computes results that no gradient reads: the layer's last product
    /// and output.
    bool recomputes_unread = false;
    double traffic_ratio = 1;         ///< bytes of memory-bound kernels, relative to Trireme
    std::int64_t gradient_bytes = 0;  ///< bytes of a gradient; 0: bytes of a sum
    double expert_imbalance = 1;      ///< largest load of a rank's experts, relative to the mean
    ExpertDispatch expert_dispatch = ExpertDispatch::tokens;
    bool grouped_products = false;  ///< one kernel computes the products of all experts
    /// Replicas sum their gradients after each micro-batch, so that each holds only its part.
    bool sums_each_pass = false;
    double tensor_overlap = 0;    ///< share of the tensor axis's messages that is hidden
    double gradient_overlap = 0;  ///< share of the data axis's sums that is hidden
    double gather_overlap = 1;    ///< with NCCL: share of weight gathers that can be hidden
    double pipeline_overlap = 1;  ///< share of the messages between stages that is hidden
    double host_per_layer = 0;    ///< host's seconds to start a layer's forward pass
    double optimizer_bytes = 0;   ///< bytes moved per parameter by an update; 0: as in Trireme
    double activation_ratio = 1;  ///< saved activations of a layer, relative to Trireme
    /// With sequence parallelism, the gathered inputs of products are kept for their gradients.
    bool keeps_gathered = false;
    double logit_bytes = 0;    ///< bytes held per logit; 0: blocks of logits, as in Trireme
    double logit_traffic = 0;  ///< bytes per logit that the loss kernels move; 0: as in Trireme
    Bytes reserve = 0;         ///< memory of a device for the driver and libraries
    bool operator==(const Software&) const = default;
  };

  std::string name;
  std::string file;  ///< path of the machine file; "": the running build
  Device device;
  Kernels kernels;
  Node node;
  Network network;
  Software software;
  /// Whether devices have separate memory, so that [parallel] offload has an effect. Tests on a
  /// host may set it.
  bool own_memory = false;
  /// Whether kernels divide their work as on a device. Also true in builds that test this on a
  /// host.
  bool device_kernels = false;

  bool on_device() const { return device.kind != DeviceKind::host; }
  /// Sets the device kind, and own_memory and device_kernels accordingly.
  void set_kind(DeviceKind kind);

  /// Number of elements of a block of logits; blocks are computed one at a time.
  std::int64_t logit_elements() const;
  /// Bytes that matrix products use in addition to their operands, without widened operands.
  Bytes product_workspace() const;

  /// Peak rate of products of this type, FLOP/s; with `tf32`, fp32 has the TF32 rate if it is
  /// known. 0: unknown.
  double peak(DType type, bool tf32 = false) const;
  /// Number of nodes that this many ranks occupy; 1 if the size of a node is unknown.
  std::int64_t nodes(std::int64_t ranks) const;
  /// The missing keys without which the time of a run with this precision on this many ranks cannot
  /// be predicted; "" if none is missing.
  std::string time_mistake(const deck::PrecisionConfig& precision, std::int64_t ranks) const;

  /// Name of the machine in messages: "this installation", "h100 (inputs/machines/h100.toml)".
  std::string called() const;
  bool operator==(const Machine&) const = default;
};

}  // namespace trireme::plan
