#pragma once

#include <trireme/architecture/operation.hpp>
#include <trireme/architecture/rank_sizes.hpp>

/// Low-rank adapters of a layer's products (LoRA; Hu et al. 2021, arXiv 2106.09685): y = x Wᵀ +
/// factor · dropout(x) Aᵀ Bᵀ. DoRA (Liu et al. 2024, arXiv 2402.09353) also multiplies each output
/// by m / ‖W + factor · B A‖, where ‖·‖ is the norm of the output's row; no gradient goes through
/// the norms. If the tensor axis splits the outputs of a product, every rank holds the whole A and
/// a part of B; if it splits the inputs, every rank holds a part of A and the whole B. The gradient
/// of a whole array is a partial sum on each rank.
namespace trireme::architecture {

/// Whether adapted products have magnitudes m (DoRA).
inline bool has_magnitudes(const deck::AdapterConfig& adapter) {
  return adapter.kind == AdapterKind::dora;
}

/// Adapter target that covers queries, keys and values with one A.
inline constexpr const char* fused_target = "attention.query_key_value";

/// Word of [adapter] parts for layer `number` of a model's chain.
std::string_view part_of_layer(const deck::ModelConfig& model, std::int64_t number);

/// Adds the adapters of [adapter] to the layer's products, if [adapter] parts names `part`.
void add_adapters(BlockDescription& layer, const deck::AdapterConfig& adapter,
                  std::string_view part);

/// Columns of this rank's output to which `part` of the adapter adds.
layout::Slice adapter_columns(const BlockDescription& layer, const Operation& op,
                              const AdapterPart& part, const RankSizes& sizes);

/// Number of rows of all arrays A of an operation. `rank`: rank of the adapters.
std::int64_t adapter_rows(const Operation& op, std::int64_t rank);
/// Number of the first row of array `a` among these rows.
std::int64_t first_adapter_row(const Operation& op, std::size_t a, std::int64_t rank);

/// Multiplications of an operation's adapters per row on one rank, in the forward pass or for the
/// gradient of their input.
double adapter_products(const BlockDescription& layer, const Operation& op, const RankSizes& sizes,
                        std::int64_t rank);

/// Sizes of the scratch memory of adapters; 0 without adapters.
struct AdapterScratch {
  std::int64_t rows = 0;     ///< x Aᵀ [T, rows], and its gradient
  std::int64_t columns = 0;  ///< in training with dropout: the adapters' input [T, columns]
  std::int64_t scaled = 0;  ///< with magnitudes: elements of a product's output, or of 64 rows of W

  /// Takes the larger value of each member.
  void include(const AdapterScratch& other);
};
AdapterScratch adapter_scratch(const BlockDescription& layer, const RankSizes& sizes,
                               const deck::AdapterConfig& adapter);

/// A product with magnitudes. For each of its outputs, a rank keeps 1 / ‖W + factor · B A‖ and m /
/// ‖W + factor · B A‖.
struct ScaledProduct {
  std::int64_t outputs = 0;
  bool split_inputs = false;  ///< the squares of the norms are summed over the tensor axis
};
std::vector<ScaledProduct> scaled_products(const BlockDescription& layer, const RankSizes& sizes);

}  // namespace trireme::architecture
