#pragma once

#include <trireme/architecture/local_sizes.hpp>
#include <trireme/architecture/operation.hpp>

/// Low-rank adapters of a layer's products (LoRA; Hu et al. 2021, arXiv 2106.09685): y = x Wᵀ +
/// factor · dropout(x) Aᵀ Bᵀ. With DoRA (Liu et al. 2024, arXiv 2402.09353), each output is then
/// multiplied by m / ‖W + factor · B A‖, the norm of its row, before the bias is added; m is
/// trained, and no gradient goes through the norms. A product whose outputs the tensor axis splits
/// has A whole on every rank and B split; a product whose inputs are split has A split and B whole.
/// Each rank computes only a summand of the gradient of the whole array.
namespace trireme::architecture {

/// Whether each output of an adapted product has a trained magnitude.
inline bool has_magnitudes(const deck::AdapterConfig& adapter) {
  return adapter.kind == AdapterKind::dora;
}

/// Target that covers queries, keys and values with one A.
inline constexpr const char* fused_target = "attention.query_key_value";

/// Adds the adapters of [adapter] to the layer's products.
void add_adapters(LayerDescription& layer, const deck::ModelConfig& model);

/// Columns of this rank's output to which a part of the adapter adds.
layout::Slice adapter_columns(const LayerDescription& layer, const Operation& op,
                              const AdapterPart& part, const LocalSizes& sizes);

/// Rows of all A of an operation, and the first row of array `a` among them.
std::int64_t adapter_rows(const Operation& op, std::int64_t rank);
std::int64_t first_adapter_row(const Operation& op, std::size_t a, std::int64_t rank);

/// Multiplications per row and pass by one rank's adapters: forward, or in the gradient of their
/// input; the gradient of the weights has twice as many.
double adapter_products(const LayerDescription& layer, const Operation& op, const LocalSizes& sizes,
                        std::int64_t rank);

/// Memory of adapters in elements; zeros without adapters. Layers of all kinds share it.
struct AdapterScratch {
  std::int64_t rows = 0;     ///< x Aᵀ [T, rows], and its gradient
  std::int64_t columns = 0;  ///< in training with dropout: the adapters' input [T, columns]
  std::int64_t scaled = 0;   ///< with magnitudes: a product's output, or rows of W + factor · B A

  /// Takes the larger value of each member.
  void include(const AdapterScratch& other);
};
AdapterScratch adapter_scratch(const LayerDescription& layer, const LocalSizes& sizes,
                               const deck::AdapterConfig& adapter);

/// A product of a layer with magnitudes. A rank keeps 1 / ‖W + factor · B A‖ and its product with m
/// for each output, and recomputes them after each change of the weights. If the tensor axis splits
/// the inputs, the squares of the norms are summed over it.
struct ScaledProduct {
  std::int64_t outputs = 0;
  bool split_inputs = false;
};
std::vector<ScaledProduct> scaled_products(const LayerDescription& layer, const LocalSizes& sizes);

}  // namespace trireme::architecture
