// The key table of machine files: sections, and for each key its type, range, default and help.
#include <trireme/plan/machine_keys.hpp>

#include <trireme/deck/entry.hpp>

namespace trireme::plan {
namespace {

const std::vector<deck::Section>& machine_sections() {
  static const std::vector<deck::Section> all{
      {"machine", "the machine as a whole"},
      {"device", "the device of one rank: a GPU, or one rank's share of a host"},
      {"kernels",
       "measured rates of kernels that are not matrix products, by the bytes that they read and "
       "write"},
      {"node", "devices that share a network interface and host memory"},
      {"network", "network between nodes"},
      {"software",
       "the program that trains on this machine: its libraries, and how a program other "
       "than Trireme differs"},
  };
  return all;
}

using Entries = std::vector<deck::EntryOf<Machine>>;

// Bounds that catch speeds in GB/s and times in µs.
constexpr double slowest = 1e6;        ///< FLOP/s or bytes/s
constexpr double fastest_peak = 1e17;  ///< FLOP/s of one device
constexpr double fastest_link = 1e14;  ///< bytes/s
constexpr double longest_seconds = 1;  ///< seconds of a launch, message or layer

void device_keys(Entries& out) {
  using Device = Machine::Device;
  deck::SectionKeys device(out, "device", &Machine::device);
  device.choice("kind", &Device::kind, "type of device that runs the kernels");
  device.bytes("memory", &Device::memory, "memory available to one rank").at_least(1);
  const auto speed = [&](const char* name, double Device::*field, const char* unit,
                         const char* help, double fastest = fastest_peak) {
    device.number(name, field, help).unit(unit).from(slowest).to(fastest).otherwise(0.0, "unknown");
  };
  speed("peak_fp64", &Device::peak_fp64, "FLOP/s", "dense peak of matrix products in fp64");
  speed("peak_fp32", &Device::peak_fp32, "FLOP/s", "dense peak of matrix products in fp32");
  speed("peak_tf32", &Device::peak_tf32, "FLOP/s",
        "dense peak of matrix products in fp32 with [precision] tf32");
  speed("peak_bf16", &Device::peak_bf16, "FLOP/s", "dense peak of matrix products in bf16");
  speed("peak_fp16", &Device::peak_fp16, "FLOP/s", "dense peak of matrix products in fp16");
  speed("peak_fp8", &Device::peak_fp8, "FLOP/s",
        "dense peak of matrix products in fp8; without it, plans use peak_bf16");
  speed("bandwidth", &Device::bandwidth, "bytes/s", "bandwidth of the device's memory",
        fastest_link);
  device
      .integer("multiprocessors", &Device::multiprocessors,
               "processors of a device; each computes one tile of a matrix product at a time")
      .at_least(1)
      .at_most(1 << 20)
      .otherwise(std::int64_t{1});
  const auto share = [&](const char* name, double Device::*field, double usual, const char* help) {
    device.number(name, field, help).above(0).to(1).otherwise(usual);
  };
  share("product_efficiency", &Device::product_efficiency, 0.8,
        "share of the peak that a large matrix product reaches");
  share("memory_efficiency", &Device::memory_efficiency, 0.8,
        "share of the memory bandwidth that long kernels reach");
  share("attention_efficiency", &Device::attention_efficiency, 0.5,
        "share of the peak that the matrix products of attention reach");
  device
      .number("attention_backward", &Device::attention_backward,
              "share of the peak that the five products of attention's gradient reach")
      .above(0)
      .to(1)
      .otherwise(0.0, "63/73 of device.attention_efficiency");
  device
      .number("tile_overhead", &Device::tile_overhead,
              "cost of a tile's start and end, in elements of the summed dimension")
      .from(0)
      .to(1e5)
      .otherwise(0.0);
  device.number("launch", &Device::launch, "shortest time of a kernel")
      .unit("s")
      .from(0)
      .to(longest_seconds)
      .otherwise(0.0);
}

void kernel_keys(Entries& out) {
  using Kernels = Machine::Kernels;
  deck::SectionKeys kernels(out, "kernels", &Machine::kernels);
  const auto rate = [&](const char* name, double Kernels::*field, const char* help) {
    kernels.number(name, field, help)
        .unit("bytes/s")
        .from(slowest)
        .to(fastest_link)
        .otherwise(0.0, "device.bandwidth × device.memory_efficiency");
  };
  rate("norm", &Kernels::norm, "rate of layer norm, RMS norm and norms of heads");
  rate("activation", &Kernels::activation, "rate of GELU, SwiGLU and their gradients");
  rate("rotary", &Kernels::rotary, "rate of rotary positions");
  rate("residual", &Kernels::residual,
       "rate of additions to the residual stream, without random numbers");
  rate("embedding", &Kernels::embedding, "rate of embedding and its gradient");
  rate("loss", &Kernels::loss, "rate of the kernels of cross entropy and its gradient");
  rate("update", &Kernels::update, "rate of the optimizer's kernels and the gradient's norm");
  kernels.number("random", &Kernels::random, "random numbers that dropout draws per second")
      .unit("numbers/s")
      .from(slowest)
      .to(fastest_link)
      .otherwise(0.0, "infinite");
}

void node_keys(Entries& out) {
  using Node = Machine::Node;
  using Network = Machine::Network;
  deck::SectionKeys node(out, "node", &Machine::node);
  node.integer("devices", &Node::devices, "devices per node, one rank on each")
      .at_least(1)
      .at_most(1024)
      .otherwise(std::int64_t{0}, "unknown");
  node.integer("processors", &Node::processors,
               "ranks of a node that can compute at the same time; more ranks take turns")
      .at_least(1)
      .at_most(1024)
      .otherwise(std::int64_t{0}, "node.devices");
  node.number("link_bandwidth", &Node::link_bandwidth,
              "bandwidth from a device to the other devices of its node, in one direction")
      .unit("bytes/s")
      .from(slowest)
      .to(fastest_link)
      .otherwise(0.0, "unknown");
  node.number("link_efficiency", &Node::link_efficiency,
              "share of link_bandwidth that long collectives reach during training")
      .above(0)
      .to(1)
      .otherwise(0.8);
  node.number("link_latency", &Node::link_latency, "time of a short message within a node")
      .unit("s")
      .from(0)
      .to(longest_seconds)
      .otherwise(0.0);
  deck::SectionKeys network(out, "network", &Machine::network);
  network
      .number("bandwidth", &Network::bandwidth,
              "bandwidth from a node to the other nodes, in one direction, all interfaces together")
      .unit("bytes/s")
      .from(slowest)
      .to(fastest_link)
      .otherwise(0.0, "unknown");
  network
      .number("efficiency", &Network::efficiency,
              "share of the bandwidth that tensor groups and messages between stages reach")
      .above(0)
      .to(1)
      .otherwise(0.8);
  network
      .number("gradient_efficiency", &Network::gradient_efficiency,
              "share of the bandwidth that the summation of gradients reaches")
      .above(0)
      .to(1)
      .otherwise(0.6);
  network.number("latency", &Network::latency, "time of a short message between nodes")
      .unit("s")
      .from(0)
      .to(longest_seconds)
      .otherwise(0.0);
}

/// Keys for properties of other programs; defaults describe Trireme.
void program_keys(deck::SectionKeys<Machine::Software, Machine>& software) {
  using Software = Machine::Software;
  software
      .choice("second_axis", &Software::second_axis,
              "axis whose ranks follow the ranks of a tensor group")
      .otherwise(std::string("pipeline"));
  software
      .boolean(
          "fused_attention", &Software::fused_attention,
          "whether attention keeps its scores in registers; otherwise all scores go through memory")
      .otherwise(true);
  software
      .boolean("scatter_gather", &Software::scatter_gather,
               "whether a tensor rank sends only its part of the tokens to the next stage")
      .otherwise(true);
  software
      .boolean("fused_accumulation", &Software::fused_accumulation,
               "whether the product that computes a weight's gradient also adds it to the "
               "gradients of other micro-batches")
      .otherwise(true);
  software
      .boolean(
          "recomputes_unread", &Software::recomputes_unread,
          "whether recompute = \"full\" also computes what no gradient reads, such as a layer's "
          "output")
      .otherwise(false);
  software
      .number("traffic_ratio", &Software::traffic_ratio,
              "bytes that memory-bound kernels of a layer move, relative to Trireme's kernels")
      .from(1)
      .to(4)
      .otherwise(1.0);
  software.integer("gradient_bytes", &Software::gradient_bytes, "bytes of an element of a gradient")
      .at_least(1)
      .at_most(8)
      .otherwise(std::int64_t{0}, "as Trireme");
  software
      .number("expert_imbalance", &Software::expert_imbalance,
              "tokens for the experts of the rank that has most of them, relative to the mean")
      .from(1)
      .to(1024)
      .otherwise(1.0);
  software
      .choice("expert_dispatch", &Software::expert_dispatch,
              "rows that travel to experts: tokens, one copy per replica with an expert of the "
              "token; copies, one for each expert of the token, straight to the tensor rank that "
              "has the expert, or with [experts] split to all tensor ranks")
      .otherwise(std::string("tokens"));
  software
      .boolean("grouped_products", &Software::grouped_products,
               "whether one kernel computes the products of all experts of a rank")
      .otherwise(false);
  software
      .boolean("sums_each_pass", &Software::sums_each_pass,
               "whether replicas sum their gradients after each micro-batch instead of once per "
               "step")
      .otherwise(false);
  const auto overlap = [&](const char* name, double Software::*field, const char* help,
                           double usual = 0) {
    software.number(name, field, help).from(0).to(1).otherwise(usual);
  };
  overlap("tensor_overlap", &Software::tensor_overlap,
          "share of the messages of tensor groups that computation hides");
  overlap("gradient_overlap", &Software::gradient_overlap,
          "share of the sums of gradients that computation hides");
  overlap("gather_overlap", &Software::gather_overlap,
          "share of the gathers of weights that computation can hide; without NCCL it hides none",
          1);
  overlap("pipeline_overlap", &Software::pipeline_overlap,
          "share of the messages between stages that computation hides; with 0 a rank waits for "
          "each",
          1);
  software
      .number("host_per_layer", &Software::host_per_layer,
              "time that the host needs to start a layer's forward pass; a backward pass takes "
              "twice as long")
      .unit("s")
      .from(0)
      .to(longest_seconds)
      .otherwise(0.0);
  software
      .number("optimizer_bytes", &Software::optimizer_bytes,
              "bytes that an optimizer step moves per parameter")
      .from(0)
      .to(1000)
      .otherwise(0.0, "as Trireme");
  software
      .number("activation_ratio", &Software::activation_ratio,
              "bytes of the saved activations of a layer, relative to Trireme's")
      .above(0)
      .to(100)
      .otherwise(1.0);
  software
      .boolean("keeps_gathered", &Software::keeps_gathered,
               "whether the inputs of products that sequence parallelism gathers are kept for the "
               "backward pass instead of gathered again")
      .otherwise(false);
  software.number("logit_bytes", &Software::logit_bytes, "bytes held for each logit")
      .from(0)
      .to(1000)
      .otherwise(0.0, "blocks of logits as Trireme");
  software
      .number("logit_traffic", &Software::logit_traffic,
              "bytes that the kernels of the loss and its gradient move per logit, without matrix "
              "products")
      .from(0)
      .to(1000)
      .otherwise(0.0, "as Trireme");
  software
      .bytes("reserve", &Software::reserve, "memory of a device that the driver and libraries use")
      .at_least(0)
      .otherwise(std::int64_t{0});
}

void software_keys(Entries& out) {
  using Software = Machine::Software;
  deck::SectionKeys software(out, "software", &Machine::software);
  software.string("name", &Software::name, "name of the program")
      .nonempty()
      .otherwise(std::string("Trireme"));
  software.choice("products", &Software::products, "library for matrix products")
      .otherwise(std::string("portable"));
  software
      .choice("attention", &Software::attention,
              "fastest available attention kernels; tensor_cores includes portable, cudnn includes "
              "both")
      .words({"portable", "tensor_cores", "cudnn"})
      .otherwise(std::string("portable"));
  software.choice("transport", &Software::transport, "transport of messages between devices")
      .words({"mpi", "nccl"})
      .otherwise(std::string("mpi"));
  program_keys(software);
}

MachineKeys make_keys() {
  Entries out;
  out.emplace_back("machine", "name", deck::KeyType::string, "name of the machine in reports")
      .in(&Machine::name)
      .nonempty();
  device_keys(out);
  kernel_keys(out);
  node_keys(out);
  software_keys(out);
  MachineKeys keys;
  for (auto& entry : out) keys.push_back(entry.take());
  return keys;
}

}  // namespace

const MachineKeys& machine_keys() {
  static const MachineKeys all = make_keys();
  return all;
}

const deck::FileKind& machine_kind() {
  static const deck::FileKind kind = deck::file_kind(
      "machine file", "`trireme help machine` lists all keys", machine_sections(), machine_keys());
  return kind;
}

}  // namespace trireme::plan
