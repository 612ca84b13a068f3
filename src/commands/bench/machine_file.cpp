// trireme bench --machine-file: describes this machine by the measurements of the sections
// bandwidth, matmul, kernels and communication. It inverts the cost model of plan/: the values are
// chosen so that the model predicts the measured seconds.
#include <trireme/base/process.hpp>
#include <trireme/commands/bench/bench.hpp>
#include <trireme/grid/threads.hpp>
#include <trireme/installation/this_installation.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/fp8.hpp>
#include <trireme/kernels/matmul_peak.hpp>
#include <trireme/plan/machine_file.hpp>
#include <trireme/tensor/device.hpp>
#include <trireme/train/precision.hpp>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

namespace trireme::commands {
namespace {

using plan::Machine;

/// Fits each value of a machine, with a comment on its measurement.
class Description {
 public:
  explicit Description(const BenchSetting& setting)
      : setting_(setting),
        found_(setting.machine),
        config_(setting.session.config()),
        ranks_(setting.runtime.ranks()),
        on_node_(ranks_on_this_node(setting)) {}

  std::string file() {
    machine_ = setting_.session.machine;  // keeps the kind of device and the libraries
    machine_.file.clear();
    name();
    peaks();
    memory();
    kernels();
    products();
    attention();
    node();
    return text(installation::schema_line("machine"), "# Measured by trireme ", TRIREME_VERSION,
                " bench with ", ranks_, ranks_ == 1 ? " rank" : " ranks", " and the deck ",
                setting_.session.deck.file_name, ".\n", plan::machine_toml(machine_, comments_));
  }

 private:
  void set(const std::string& key, double& value, double measured, std::string how) {
    if (!(measured > 0)) return;
    // Three digits; further digits are noise.
    const double unit = std::pow(10, std::floor(std::log10(measured)) - 2);
    value = unit < 1 ? std::round(measured / unit) / std::round(1 / unit)
                     : std::round(measured / unit) * unit;
    comments_[key] = std::move(how);
  }
  void set_share(const std::string& key, double& value, double measured, std::string how) {
    set(key, value, std::min(measured, 1.0), std::move(how));
  }
  double smallest(double mine, const char* what) const {
    return setting_.runtime.world().all_reduce<double>(mine, grid::Reduction::minimum, what);
  }

  void name();
  void peaks();
  void memory();
  void kernels();
  void products();
  void attention();
  void node();
  std::int64_t processors() const;

  const BenchSetting& setting_;
  const BenchMachine& found_;
  const deck::Config& config_;
  int ranks_;
  std::int64_t on_node_;
  Machine machine_;
  plan::KeyComments comments_;
};

void Description::name() {
  const auto device = device_info();
  machine_.name = device ? device->name : host_name();
  machine_.device.memory = device ? device->memory
                                  : static_cast<Bytes>(::sysconf(_SC_PHYS_PAGES)) *
                                        static_cast<Bytes>(::sysconf(_SC_PAGESIZE)) / on_node_;
  comments_["device.memory"] =
      device ? "total" : text("of the node, divided by the number of its ranks, ", on_node_);
#if defined(KOKKOS_ENABLE_CUDA)
  machine_.device.multiprocessors = Exec().cuda_device_prop().multiProcessorCount;
#elif defined(KOKKOS_ENABLE_HIP)
  machine_.device.multiprocessors = Exec().hip_device_prop().multiProcessorCount;
#endif
}

void Description::peaks() {
  Machine::Device& d = machine_.device;
  const deck::PrecisionConfig& precision = config_.precision;
  const auto of = [&](DType type) -> double& {
    if (type == DType::fp64) return d.peak_fp64;
    if (type == DType::bf16) return d.peak_bf16;
    if (type == DType::fp16) return d.peak_fp16;
    return precision.tf32 && type == precision.compute ? d.peak_tf32 : d.peak_fp32;
  };
  const kernels::Handle handle(train::kernel_choice(precision));
  const char* how = "large square products, all ranks at once, the slowest rank";
  for (const DType type : {DType::fp64, DType::fp32, DType::bf16, DType::fp16}) {
    const bool known = type == precision.compute;
    const double rate =
        known ? found_.peak->slowest : smallest(kernels::measure_matmul_peak(handle, type), "peak");
    const bool tf32 = precision.tf32 && type == DType::fp32;
    set(tf32 ? "device.peak_tf32" : text("device.peak_", trireme::name_of(type)), of(type), rate,
        how);
  }
  // If one rank's device has no fp8 products, the value is unknown on all ranks.
  const double fp8 = kernels::fp8_obstacle(handle).empty() ? kernels::measure_fp8_peak(handle) : 0;
  set("device.peak_fp8", d.peak_fp8, smallest(fp8, "peak of fp8"),
      text(how, ", operands rounded before"));
}

void Description::memory() {
  Machine::Device& d = machine_.device;
  const BenchBandwidth& far = found_.bandwidth.back();
  set("device.bandwidth", d.bandwidth, far.slowest,
      text("y += x, arrays of ", human_bytes(far.working_set), " per rank, all ranks at once"));
  set_share("device.memory_efficiency", d.memory_efficiency, 1,
            "the bandwidth is that of a kernel");
  const Exec exec;
  const BenchArray<float> x(exec, 16), y(exec, 16);
  const BenchTiming tiny = time_calls(
      setting_, [&] { kernels::accumulate<float>(exec, y.list(), x.list()); }, machine_rounds);
  set("device.launch", d.launch, tiny.seconds, "y += x of 16 elements");
}

/// A rate of [kernels], and name prefixes of the kernels whose times determine it.
struct Rate {
  const char* key;
  double Machine::Kernels::*field;
  std::vector<std::string> names;
  bool draws = false;  ///< draws random values, with dropout
};

/// Prefixes of the kernels of an update, whatever its rule.
std::vector<std::string> update_kernels() {
  std::vector<std::string> all{"gradient", "weights.round"};
  all.insert(all.end(), names<OptimizerKind>().begin(), names<OptimizerKind>().end());
  return all;
}

void Description::kernels() {
  if (config_.model.dropout > 0) {
    const double each =
        (*found_.arithmetic)[static_cast<std::size_t>(kernels::Arithmetic::random_word)];
    set("kernels.random", machine_.kernels.random, smallest(1 / each, "random numbers"),
        "Philox in a first-level cache");
  }
  const Rate rates[]{
      {"kernels.norm",
       &Machine::Kernels::norm,
       {"layer_norm", "rms_norm", "head_norm", "width_norm"}},
      {"kernels.activation",
       &Machine::Kernels::activation,
       {"gelu", "swiglu", "geglu", "clamped_swiglu"}},
      {"kernels.rotary", &Machine::Kernels::rotary, {"rotary"}},
      {"kernels.residual",
       &Machine::Kernels::residual,
       {"residual", "dropout", "accumulate"},
       true},
      {"kernels.embedding",
       &Machine::Kernels::embedding,
       {"embedding", "positions", "segments", "rows"}},
      {"kernels.loss", &Machine::Kernels::loss, {"cross_entropy"}},
      {"kernels.update", &Machine::Kernels::update, update_kernels()},
  };
  for (const Rate& rate : rates) {
    double bytes = 0;
    Seconds seconds = 0;
    for (const BenchKernelTime& k : found_.kernels) {
      const bool of_it = std::ranges::any_of(
          rate.names, [&](const std::string& name) { return k.name.starts_with(name); });
      if (!of_it || k.calls == 0) continue;
      // The model counts only the bytes that an update must move. Zeroing of the gradient counts no
      // bytes, and rounding counts only its output, because it reads values that the update has
      // just written.
      const double counted = k.name == "gradient.zero"   ? 0
                             : k.name == "weights.round" ? k.work / 3
                                                         : k.work;
      Seconds once = k.seconds - machine_.device.launch;
      if (rate.draws && machine_.kernels.random > 0 && k.name != "accumulate")
        once -= k.elements / machine_.kernels.random;
      bytes += k.calls * counted;
      seconds += k.calls * std::max(once, k.seconds / 4);
    }
    if (seconds > 0)
      set(rate.key, machine_.kernels.*rate.field, bytes / seconds,
          text("kernels of the deck: ", join(rate.names, ", ")));
  }
}

void Description::products() {
  Machine ideal = machine_;
  ideal.device.product_efficiency = 1;
  ideal.device.launch = 0;
  const plan::KernelTime model(ideal, config_.precision);
  Seconds best = 0, measured = 0;
  for (const BenchProduct& p : found_.products) {
    best += p.calls * model.product(p.sizes, 0);
    measured += p.calls * std::max(p.seconds - machine_.device.launch, p.seconds / 4);
  }
  if (measured > 0)
    set_share("device.product_efficiency", machine_.device.product_efficiency, best / measured,
              "the deck's products, weighted by their calls");
}

void Description::attention() {
  const double peak = machine_.peak(config_.precision.compute, config_.precision.tf32);
  const auto head_size = static_cast<double>(config_.model.head_size());
  Machine::Device& d = machine_.device;
  for (const BenchKernelTime& k : found_.kernels) {
    const bool forward = k.name == "attention.forward";
    if (!forward && k.name != "attention.backward") continue;
    const double products = forward ? k.work : k.work / 2;  // FLOPs of the forward pass
    Seconds seconds = k.seconds - d.launch;
    if (config_.model.dropout > 0 && machine_.kernels.random > 0)
      seconds -= products / (4 * head_size) / machine_.kernels.random;
    const double rate = products / std::max(seconds, k.seconds / 4);
    if (forward)
      set_share("device.attention_efficiency", d.attention_efficiency, rate / peak,
                "the deck's attention");
    else
      set_share("device.attention_backward", d.attention_backward, 2.5 * rate / peak,
                "its gradient, five products");
  }
}

/// Number of ranks that the cores of this node can run at the same time, if ranks are bound to
/// equal or disjoint sets of cores. Collective.
std::int64_t Description::processors() const {
  const std::string cores = grid::bound_cores();
  grid::Communicator& world = setting_.runtime.world();
  const auto gather = [&](std::size_t mine, const char* what) {
    return world.all_gather(static_cast<std::int64_t>(mine), what);
  };
  const std::string node = host_name();
  const auto nodes = gather(std::hash<std::string>()(node), "nodes of ranks");
  const auto sets = gather(std::hash<std::string>()(cores), "sets of cores");
  const auto counts =
      gather(static_cast<std::size_t>(std::ranges::count(cores, '1')), "numbers of cores");
  const auto rank = static_cast<std::size_t>(setting_.runtime.rank());
  std::set<std::int64_t> seen;
  std::int64_t sum = 0;
  for (std::size_t r = 0; r < sets.size(); ++r)
    if (nodes[r] == nodes[rank] && seen.insert(sets[r]).second) sum += counts[r];
  return std::max<std::int64_t>(1, sum / std::max(1, Exec().concurrency()));
}

void Description::node() {
  Machine::Node& n = machine_.node;
  n.devices = on_node_;
  comments_["node.devices"] = "ranks per node of this measurement";
  if (!machine_.on_device()) {
    n.processors = std::min(on_node_, setting_.runtime.world().all_reduce<std::int64_t>(
                                          processors(), grid::Reduction::maximum, "processors"));
    comments_["node.processors"] = "processors that the ranks share";
  }
  if (!found_.sums) return;
  // The following formulas invert NetworkTime::ring() in plan/network_time.cpp.
  const auto ranks = static_cast<double>(ranks_);
  const double sums = 2 * (ranks - 1) / ranks / found_.sums->beta;
  const double bandwidth = std::max(sums, 1 / found_.messages->beta);
  const bool within = on_node_ == ranks_;
  const std::string how = text("messages of 4 KiB to 64 MiB, all ", ranks_, " ranks at once");
  if (within) {
    set("node.link_bandwidth", n.link_bandwidth, bandwidth, how);
    set_share("node.link_efficiency", n.link_efficiency, sums / bandwidth, "sums of all ranks");
    set("node.link_latency", n.link_latency, found_.sums->alpha / (ranks + 3), "sums of all ranks");
    return;
  }
  Machine::Network& w = machine_.network;
  const auto sharing = static_cast<double>(on_node_);
  set("network.bandwidth", w.bandwidth, bandwidth * sharing, how);
  set_share("network.efficiency", w.efficiency, sums / bandwidth, "sums of all ranks");
  set_share("network.gradient_efficiency", w.gradient_efficiency, sums / bandwidth,
            "sums of all ranks");
  set("network.latency", w.latency, found_.sums->alpha / (2 * ranks), "sums of all ranks");
}

}  // namespace

bool for_machine_file(const std::string& section) {
  return section == "bandwidth" || section == "matmul" || section == "kernels" ||
         section == "communication";
}

std::string machine_file_of(const BenchSetting& setting) {
  return Description(setting).file();
}

}  // namespace trireme::commands
