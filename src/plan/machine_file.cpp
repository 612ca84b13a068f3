// Reads, checks and writes machine files. Files have the syntax of decks (deck/key_file.hpp).
#include <trireme/plan/machine_file.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/input.hpp>
#include <trireme/base/text.hpp>
#include <trireme/deck/diagnostics.hpp>
#include <trireme/deck/value.hpp>
#include <trireme/plan/machine_keys.hpp>

#include <cstdint>
#include <filesystem>
#include <fstream>

namespace trireme::plan {
namespace {

/// Checks conditions that relate two keys.
class CrossCheck {
 public:
  CrossCheck(const Machine& machine, const deck::Given& given, deck::Diagnostics& diagnostics)
      : machine_(machine), given_(given), diagnostics_(diagnostics) {}

  void run() {
    libraries();
    if (machine_.software.name == Machine::Software{}.name) trireme();
    speeds();
    if (machine_.node.devices > 0)
      expect(machine_.node.processors <= machine_.node.devices, "node.processors", "node.devices",
             "a node runs one rank per device",
             text("set processors to at most ", machine_.node.devices, ", or remove it"));
    expect(machine_.software.reserve < machine_.device.memory, "software.reserve", "device.memory",
           "nothing is left for a plan", "set reserve to a part of the memory");
  }

 private:
  void libraries() {
    const Machine::Software& s = machine_.software;
    const DeviceKind kind = machine_.device.kind;
    const bool cuda = kind == DeviceKind::cuda;
    if (s.products == ProductLibrary::cublaslt)
      expect(cuda, "software.products", "device.kind", "cuBLASLt runs on NVIDIA devices only",
             kind == DeviceKind::host ? "choose products = \"onednn\" or \"portable\""
                                      : "choose products = \"portable\"");
    if (s.products == ProductLibrary::onednn)
      expect(kind == DeviceKind::host, "software.products", "device.kind",
             "Trireme calls oneDNN on hosts only",
             cuda ? "choose products = \"cublaslt\" or \"portable\""
                  : "choose products = \"portable\"");
    if (s.attention != AttentionKind::portable) {
      expect(cuda, "software.attention", "device.kind", "these kernels run on NVIDIA devices only",
             "choose attention = \"portable\"");
      expect(s.fused_attention, "software.fused_attention", "software.attention",
             "these kernels are fused",
             "choose attention = \"portable\" or fused_attention = true");
    }
    if (s.attention == AttentionKind::cudnn && cuda)
      expect(s.products == ProductLibrary::cublaslt, "software.attention", "software.products",
             "cuDNN shares the workspace of cuBLASLt",
             "choose attention = \"tensor_cores\" or products = \"cublaslt\"");
    if (s.transport == TransportKind::nccl)
      expect(cuda || kind == DeviceKind::hip, "software.transport", "device.kind",
             "NCCL and RCCL move messages between NVIDIA or AMD devices",
             "choose transport = \"mpi\"");
  }

  /// Checks that a file for Trireme has Trireme's second axis, fused attention and scatter_gather.
  void trireme() {
    const Machine::Software& s = machine_.software;
    const std::string_view remedy = "set name to the program's name, or remove the key";
    expect(s.second_axis == SecondAxis::pipeline, "software.second_axis", "software.name",
           "Trireme numbers the ranks of a pipeline next to those of a tensor group", remedy);
    expect(s.fused_attention, "software.fused_attention", "software.name",
           "all attention kernels of Trireme are fused", remedy);
    expect(s.scatter_gather, "software.scatter_gather", "software.name",
           "a tensor rank of Trireme never sends more than its part", remedy);
  }

  void speeds() {
    const Machine::Device& device = machine_.device;
    const Machine::Node& node = machine_.node;
    const double outside = machine_.network.bandwidth;
    // Checked only for devices: caches make messages between processes of a host faster than its
    // memory.
    if (machine_.on_device() && device.bandwidth > 0) {
      const std::string_view remedy = "give both in bytes/s, links in one direction";
      expect(node.link_bandwidth <= device.bandwidth, "node.link_bandwidth", "device.bandwidth",
             "messages are read from the device's memory", remedy);
      if (node.devices > 0)
        expect(outside <= static_cast<double>(node.devices) * device.bandwidth, "network.bandwidth",
               "device.bandwidth",
               text("messages are read from the memory of ", node.devices, " devices"), remedy);
    }
    expect(outside == 0 || node.devices > 0, "network.bandwidth", "node.devices",
           "without it, ranks are not assigned to nodes", "set [node] devices");
  }

  /// Adds the error that key `name` contradicts key `other`, unless `holds` is true or one of the
  /// two values is invalid. Both names are full names.
  void expect(bool holds, std::string_view name, std::string_view other, std::string_view reason,
              std::string_view remedy) {
    const auto invalid = [&](std::string_view key) {
      return given_.invalid.contains(std::string(key));
    };
    if (holds || invalid(name) || invalid(other)) return;
    diagnostics_.add(text(cited(name), " contradicts ", cited(other), ": ", reason, "; ", remedy));
  }

  std::string cited(std::string_view name) const {
    for (const auto& key : machine_keys()) {
      if (key.full_name() != name) continue;
      const auto place = given_.places.find(key.full_name());
      if (place != given_.places.end()) return deck::cite(key, key.load(machine_), place->second);
      return key.rule.empty() ? deck::cite(key, key.load(machine_), "default")
                              : text("[", key.section, "] ", key.name, " (", key.rule, ")");
    }
    return "";
  }

  const Machine& machine_;
  const deck::Given& given_;
  deck::Diagnostics& diagnostics_;
};

}  // namespace

Machine parse_machine(std::string_view content, const std::string& file_name) {
  const bool launches =
      content.starts_with("[launch]") || content.find("\n[launch]") != content.npos;
  check_usage(!launches, file_name,
              " is a site file, which `trireme-job --site` reads; give a machine file, such as "
              "inputs/machines/h100.toml (`trireme help machine` lists its keys)");
  Machine machine;
  deck::Diagnostics diagnostics(file_name, content);
  deck::Given given = deck::read_keys(content, file_name, {}, machine_kind(), diagnostics);
  deck::store_keys(machine_keys(), file_name, given, machine, diagnostics);
  machine.file = file_name;
  machine.set_kind(machine.device.kind);
  CrossCheck(machine, given, diagnostics).run();
  diagnostics.throw_if_any();
  return machine;
}

Machine load_machine(const std::string& path) {
  return parse_machine(deck::read_key_file(path, machine_kind()), path);
}

std::string machine_toml(const Machine& machine, const KeyComments& comments) {
  std::string out;
  for (const deck::Section& section : machine_kind().sections) {
    std::string lines;
    for (const auto& key : machine_keys()) {
      const deck::Value value = key.load(machine);
      if (key.section != section.name || (key.fallback && value == *key.fallback)) continue;
      std::string problem;
      check_usage(deck::accept(key, value, problem).has_value(), machine.called(),
                  " cannot be described by a machine file: [", key.section, "] ", key.name, ": ",
                  problem);
      lines += text(key.name, " = ", deck::literal(key, value));
      const auto comment = comments.find(key.full_name());
      lines += comment == comments.end() ? "\n" : text("  # ", comment->second, "\n");
    }
    if (!lines.empty()) out += text(out.empty() ? "" : "\n", "[", section.name, "]\n", lines);
  }
  return out;
}

std::string machine_text() {
  return "A machine file describes a machine to plan for: trireme check DECK --machine FILE. It is "
         "TOML.\n" +
         deck::key_text(machine_kind());
}

std::string machine_markdown() {
  return deck::key_markdown(machine_kind());
}

std::string read_text_file(const std::string& path, const std::string& cited,
                           const std::string& remedy) {
  constexpr std::int64_t limit = std::int64_t{1} << 28;
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  check_usage(std::filesystem::exists(status), cited, ": no such file", remedy);
  expect_file(path, cited, true);
  std::ifstream in(path, std::ios::binary);
  check_usage(in.is_open(), cited, ": cannot be opened for reading");
  std::string content;
  std::string block(1 << 16, '\0');
  while (in.read(block.data(), static_cast<std::streamsize>(block.size())) || in.gcount() > 0) {
    content.append(block, 0, static_cast<std::size_t>(in.gcount()));
    check_usage(static_cast<std::int64_t>(content.size()) <= limit, cited, ": has more than ",
                human_bytes(limit), "; is it the right file?");
  }
  check_usage(!in.bad(), cited, ": cannot be read");
  return content;
}

}  // namespace trireme::plan
