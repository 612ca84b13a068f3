#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/rank_sizes.hpp>

#include <cstdint>
#include <string>
#include <string_view>

/// The tensors that [precision] products = "fp8" rounds: the input, the weights and the output
/// gradient of each linear operation of each layer. They have consecutive numbers in this order,
/// three per operation, equal on all ranks.
namespace trireme::architecture {

/// Name of the maxima of the rounded tensors in checkpoints: an array [history, tensors] of fp32.
/// Row (s − 1) mod history belongs to step s.
inline constexpr std::string_view fp8_maxima_name = "fp8.maxima";
/// Whether an array of a checkpoint is optimizer state or the fp8 maxima, and not part of the
/// model.
inline bool is_state(const std::string& array) {
  return array.starts_with("optimizer.") || array == fp8_maxima_name;
}

/// Number of tensors in the layers before layer `end`; −1: in all layers.
std::int64_t fp8_tensors(const Architecture& architecture, std::int64_t end = -1);
/// Number of the first of the three tensors of an operation in layer `layer`.
std::int64_t fp8_tensor(const Architecture& architecture, const Operation& operation,
                        std::int64_t layer);

/// Bytes of the rounded operands of a layer's largest product.
Bytes fp8_code_bytes(const BlockDescription& layer, const RankSizes& sizes);
/// Numbers from an inverse scale to the next: cuBLASLt reads scales at multiples of 16 bytes.
inline constexpr std::int64_t fp8_inverse_stride = 4;
/// Bytes of the maxima, their history, the scales and the inverse scales.
Bytes fp8_scaling_bytes(std::int64_t tensors, std::int64_t history);

}  // namespace trireme::architecture
