#include <trireme/plan/machine.hpp>

#include <trireme/architecture/placement.hpp>
#include <trireme/base/kernel_memory.hpp>
#include <trireme/base/text.hpp>

#include <vector>

namespace trireme::plan {

EnumWords enum_words(DeviceKind) {
  static constexpr auto all = words_of<DeviceKind>("host", "cuda", "hip", "sycl");
  return all;
}
EnumWords enum_words(ProductLibrary) {
  static constexpr auto all = words_of<ProductLibrary>("portable", "onednn", "cublaslt");
  return all;
}
EnumWords enum_words(SecondAxis) {
  static constexpr auto all = words_of<SecondAxis>("pipeline", "data");
  return all;
}
EnumWords enum_words(ExpertDispatch) {
  static constexpr auto all = words_of<ExpertDispatch>("tokens", "copies");
  return all;
}

std::string_view name_of(DeviceKind kind) {
  return enum_words(kind)[static_cast<std::size_t>(kind)];
}
std::string_view name_of(ProductLibrary library) {
  return enum_words(library)[static_cast<std::size_t>(library)];
}
std::string_view name_of(SecondAxis axis) {
  return enum_words(axis)[static_cast<std::size_t>(axis)];
}
std::string_view name_of(ExpertDispatch dispatch) {
  return enum_words(dispatch)[static_cast<std::size_t>(dispatch)];
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

double Machine::peak(DType type, bool tf32) const {
  switch (type) {
    case DType::fp64:
      return device.peak_fp64;
    case DType::fp32:
      return tf32 && device.peak_tf32 > 0 ? device.peak_tf32 : device.peak_fp32;
    case DType::bf16:
      return device.peak_bf16;
    case DType::fp16:
      return device.peak_fp16;
    case DType::int64:
    case DType::int32:
    case DType::uint32:
    case DType::uint16:
    case DType::uint8:
      break;
  }
  return 0;
}

std::int64_t Machine::nodes(std::int64_t ranks) const {
  return node.devices == 0 ? 1 : (ranks + node.devices - 1) / node.devices;
}

std::string Machine::time_mistake(const deck::PrecisionConfig& precision,
                                  std::int64_t ranks) const {
  std::vector<std::string> missing;
  const auto need = [&missing](double value, const std::string& key) {
    if (value <= 0) missing.push_back(key);
  };
  need(peak(precision.compute, precision.tf32),
       text("[device] peak_", trireme::name_of(precision.compute)));
  need(device.bandwidth, "[device] bandwidth");
  if (ranks > 1) need(static_cast<double>(node.devices), "[node] devices");
  if (ranks > 1 && node.devices != 1) need(node.link_bandwidth, "[node] link_bandwidth");
  if (nodes(ranks) > 1) need(network.bandwidth, "[network] bandwidth");
  return join(missing, ", ");
}

std::string Machine::called() const {
  return file.empty() ? name : text(name, " (", file, ")");
}

}  // namespace trireme::plan
