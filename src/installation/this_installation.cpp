#include <trireme/installation/this_installation.hpp>

#include <trireme/base/bf16_instructions.hpp>
#include <trireme/base/process.hpp>
#include <trireme/base/text.hpp>

#include <dlfcn.h>

#include <filesystem>
#include <system_error>

namespace trireme::installation {

// src/CMakeLists.txt defines each macro below as an enumerator's name, such as `cuda`.
plan::Machine this_machine() {
  plan::Machine machine;
  machine.name = "this installation";
  machine.set_kind(plan::DeviceKind::TRIREME_DEVICE_KIND);
  machine.software.products = plan::ProductLibrary::TRIREME_PRODUCTS;
  machine.software.attention = AttentionKind::TRIREME_ATTENTION;
  machine.software.transport = TransportKind::TRIREME_TRANSPORT;
  if (!machine.on_device() && bf16_instructions() != Bf16Instructions::plain)
    machine.software.bf16 = name_of(bf16_instructions());
#ifdef TRIREME_AS_ON_DEVICE
  machine.device_kernels = true;
#endif
  return machine;
}

std::string schema_line(const std::string& name) {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto path = program.parent_path().parent_path() / "share/trireme" / (name + ".schema.json");
  return std::filesystem::exists(path, error) ? text("#:schema ", path.string(), "\n") : "";
}

const char* driver_library(plan::DeviceKind kind) {
  return kind == plan::DeviceKind::cuda ? "libcuda.so.1" : nullptr;
}

std::string missing_driver(const char* library) {
  if (void* handle = dlopen(library, RTLD_LAZY | RTLD_LOCAL); handle != nullptr) {
    dlclose(handle);
    return "";
  }
  const char* said = dlerror();
  return text(
      "no NVIDIA driver was found on ", host_name(), " (", said != nullptr ? said : library,
      "), but this installation's kernels run on NVIDIA devices; start the command in a job "
      "on a node with devices (Slurm: --gpus-per-node)");
}

}  // namespace trireme::installation
