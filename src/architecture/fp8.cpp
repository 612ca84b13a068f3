#include <trireme/architecture/fp8.hpp>
#include <trireme/base/check.hpp>
#include <trireme/base/fp8.hpp>

#include <algorithm>

namespace trireme::architecture {
namespace {

constexpr std::int64_t tensors_of_operation = 3;

std::int64_t linear_operations(const BlockDescription& layer) {
  return std::ranges::count(layer.operations, OperationKind::linear, &Operation::kind);
}

std::int64_t columns_of(const BlockDescription& layer, int tensor, const RankSizes& sizes) {
  return columns_of(layer.tensors[static_cast<std::size_t>(tensor)].columns, sizes);
}

}  // namespace

std::int64_t fp8_tensors(const Architecture& architecture, std::int64_t end) {
  const std::vector<std::int64_t> counts =
      architecture.count_kinds({0, end < 0 ? architecture.model.all_layers() : end});
  std::int64_t tensors = 0;
  for (std::size_t k = 0; k < counts.size(); ++k)
    tensors += counts[k] * tensors_of_operation * linear_operations(architecture.layer_kinds()[k]);
  return tensors;
}

std::int64_t fp8_tensor(const Architecture& architecture, const Operation& operation,
                        std::int64_t layer) {
  std::int64_t tensor = fp8_tensors(architecture, layer);
  for (const Operation& op : architecture.description(block_of_layer(layer)).operations) {
    if (op.kind != OperationKind::linear) continue;
    if (op.name == operation.name) return tensor;
    tensor += tensors_of_operation;
  }
  check(false, "a layer has no linear operation '", operation.name, "'");
  return 0;
}

Bytes fp8_code_bytes(const BlockDescription& layer, const RankSizes& sizes) {
  Bytes most = 0;
  for (const Operation& op : layer.operations) {
    if (op.kind != OperationKind::linear) continue;
    const std::int64_t in = columns_of(layer, op.input(), sizes);
    const std::int64_t out = columns_of(layer, op.output, sizes);
    const Bytes x = fp8_operand_bytes(sizes.tokens * in);
    const Bytes w = fp8_operand_bytes(in * out);
    const Bytes dy = fp8_operand_bytes(sizes.tokens * out);
    most = std::max({most, x + w, dy + w, dy + x});
  }
  return most;
}

Bytes fp8_scaling_bytes(std::int64_t tensors, std::int64_t history) {
  constexpr Bytes number = 4;
  // maxima, scales and inverse scales
  return fp8_operand_bytes(tensors * history * number) + 2 * fp8_operand_bytes(tensors * number) +
         fp8_operand_bytes(tensors * fp8_inverse_stride * number);
}

}  // namespace trireme::architecture
