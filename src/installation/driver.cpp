#include <trireme/installation/driver.hpp>

#include <trireme/base/process_identity.hpp>
#include <trireme/base/text.hpp>

#include <dlfcn.h>
#include <unistd.h>

namespace trireme::installation {

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
