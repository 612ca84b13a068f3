// Machine files: cross-checks, parsing, writing and help. Files have the syntax of decks
// (deck/key_file.hpp).
#include <trireme/base/text.hpp>
#include <trireme/deck/diagnostics.hpp>
#include <trireme/deck/entry.hpp>
#include <trireme/plan/machine_file.hpp>

namespace trireme::plan {
namespace {

/// Conditions on several keys together.
class CrossCheck {
 public:
  CrossCheck(const Machine& machine, const deck::Given& given, deck::Diagnostics& diagnostics)
      : machine_(machine), given_(given), diagnostics_(diagnostics) {}

  void run() {
    const Machine::Software& s = machine_.software;
    const DeviceKind kind = machine_.device.kind;
    const bool cuda = kind == DeviceKind::cuda;
    if (s.products == ProductLibrary::cublaslt)
      expect(cuda, "products", "kind", "cuBLASLt runs on NVIDIA devices only",
             kind == DeviceKind::host ? "choose products = \"onednn\" or \"portable\""
                                      : "choose products = \"portable\"");
    if (s.products == ProductLibrary::onednn)
      expect(kind == DeviceKind::host, "products", "kind", "Trireme calls oneDNN on hosts only",
             cuda ? "choose products = \"cublaslt\" or \"portable\""
                  : "choose products = \"portable\"");
    if (s.attention != AttentionKind::portable)
      expect(cuda, "attention", "kind", "these kernels run on NVIDIA devices only",
             "choose attention = \"portable\"");
    if (s.attention == AttentionKind::cudnn && cuda)
      expect(s.products == ProductLibrary::cublaslt, "attention", "products",
             "cuDNN shares the workspace of cuBLASLt",
             "choose attention = \"tensor_cores\" or products = \"cublaslt\"");
    if (s.transport == TransportKind::nccl)
      expect(cuda || kind == DeviceKind::hip, "transport", "kind",
             "NCCL and RCCL move messages between NVIDIA or AMD devices",
             "choose transport = \"mpi\"");
  }

 private:
  /// Checks [software] `name` against another key of [device] or [software].
  void expect(bool holds, const char* name, const char* other, const char* reason,
              const char* remedy) {
    const deck::KeyText& key = *machine_kind().find("software", name);
    const deck::KeyText* with = machine_kind().find("device", other);
    if (with == nullptr) with = machine_kind().find("software", other);
    if (holds || given_.invalid.contains(key.full_name()) ||
        given_.invalid.contains(with->full_name()))
      return;
    diagnostics_.add(text(cited(key), " contradicts ", cited(*with), ": ", reason, "; ", remedy));
  }

  std::string cited(const deck::KeyText& key) const {
    const auto place = given_.places.find(key.full_name());
    for (const auto& one : machine_keys())
      if (&one == &key)
        return deck::cite(key, one.load(machine_),
                          place == given_.places.end() ? "default" : place->second);
    return "";
  }

  const Machine& machine_;
  const deck::Given& given_;
  deck::Diagnostics& diagnostics_;
};

}  // namespace

Machine parse_machine(std::string_view content, const std::string& file_name) {
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

std::string machine_text() {
  return "A machine file describes a machine to plan for: trireme check DECK --machine FILE. It is "
         "TOML.\n" +
         deck::key_text(machine_kind());
}

std::string machine_markdown() {
  return deck::key_markdown(machine_kind());
}

}  // namespace trireme::plan
