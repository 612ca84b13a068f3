#pragma once

#include <trireme/architecture/operation.hpp>
#include <trireme/architecture/rank_sizes.hpp>

/// Low-rank adapters of a layer's products (LoRA; Hu et al. 2021, arXiv 2106.09685): y = x Wᵀ +
/// factor · dropout(x) Aᵀ Bᵀ. With DoRA (Liu et al. 2024, arXiv 2402.09353), each output is then
/// multiplied by m / ‖W + factor · B A‖, where ‖·‖ is the norm of the output's row, before the bias
/// is added; m is trained, and no gradient goes through the norms. If the tensor axis splits the
/// outputs of a product, every rank holds the whole A and a part of B; if it splits the inputs,
/// every rank holds a part of A and the whole B. The gradient of a whole array is a partial sum on
/// each rank.
namespace trireme::architecture {

/// Whether each output of an adapted product has a trained magnitude.
inline bool has_magnitudes(const deck::AdapterConfig& adapter) {
  return adapter.kind == AdapterKind::dora;
}

/// Adapter target that covers queries, keys and values with one A.
inline constexpr const char* fused_target = "attention.query_key_value";

/// Adds the adapters of [adapter] to the layer's products.
void add_adapters(BlockDescription& layer, const deck::ModelConfig& model);

/// Columns of this rank's output to which `part` of the adapter adds.
layout::Slice adapter_columns(const BlockDescription& layer, const Operation& op,
                              const AdapterPart& part, const RankSizes& sizes);

/// adapter_rows(): number of rows of all arrays A of an operation. first_adapter_row(): number of
/// the first row of array `a` among these rows.
std::int64_t adapter_rows(const Operation& op, std::int64_t rank);
std::int64_t first_adapter_row(const Operation& op, std::size_t a, std::int64_t rank);

/// Multiplications of an operation's adapters per row on one rank: in the forward pass, or for the
/// gradient of their input. The gradient of their weights takes twice as many.
double adapter_products(const BlockDescription& layer, const Operation& op, const RankSizes& sizes,
                        std::int64_t rank);

/// Sizes of the memory of adapters: columns of arrays with T rows, and elements of the array
/// `scaled`; 0 without adapters. Layers of all kinds share this memory.
struct AdapterScratch {
  std::int64_t rows = 0;     ///< x Aᵀ [T, rows], and its gradient
  std::int64_t columns = 0;  ///< in training with dropout: the adapters' input [T, columns]
  std::int64_t scaled = 0;  ///< with magnitudes: a product's output, or 64 rows of W + factor · B A

  /// Takes the larger value of each member.
  void include(const AdapterScratch& other);
};
AdapterScratch adapter_scratch(const BlockDescription& layer, const RankSizes& sizes,
                               const deck::AdapterConfig& adapter);

/// A product with magnitudes. For each of its outputs, a rank keeps 1 / ‖W + factor · B A‖ and m /
/// ‖W + factor · B A‖, and recomputes them after each change of the weights. If the tensor axis
/// splits the inputs, the squares of the norms are summed over the tensor axis.
struct ScaledProduct {
  std::int64_t outputs = 0;
  bool split_inputs = false;
};
std::vector<ScaledProduct> scaled_products(const BlockDescription& layer, const RankSizes& sizes);

}  // namespace trireme::architecture
