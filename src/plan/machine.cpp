#include <trireme/architecture/placement.hpp>
#include <trireme/base/matmul_memory.hpp>
#include <trireme/base/text.hpp>
#include <trireme/plan/machine.hpp>

#include <array>

namespace trireme {
namespace {
constexpr std::array<std::string_view, 4> device_names{"host", "cuda", "hip", "sycl"};
constexpr std::array<std::string_view, 3> product_names{"portable", "onednn", "cublaslt"};
}  // namespace

template <>
std::span<const std::string_view> names<plan::DeviceKind>() {
  return device_names;
}
template <>
std::span<const std::string_view> names<plan::ProductLibrary>() {
  return product_names;
}
}  // namespace trireme

namespace trireme::plan {

std::string_view name_of(DeviceKind kind) {
  return device_names[static_cast<std::size_t>(kind)];
}
std::string_view name_of(ProductLibrary library) {
  return product_names[static_cast<std::size_t>(library)];
}

void Machine::set_kind(DeviceKind kind) {
  device.kind = kind;
  own_memory = device_kernels = on_device();
}

std::int64_t Machine::logit_elements() const {
  return on_device() ? architecture::device_logit_elements : architecture::host_logit_elements;
}

Bytes Machine::product_workspace() const {
  return (software.products == ProductLibrary::cublaslt ? cublaslt_workspace_bytes : 0) +
         (device_kernels ? column_sum_bytes : 0);
}

std::string Machine::called() const {
  return file.empty() ? name : text(name, " (", file, ")");
}

}  // namespace trireme::plan
