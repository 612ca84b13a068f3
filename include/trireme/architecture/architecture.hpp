#pragma once

#include <trireme/base/types.hpp>
#include <trireme/deck/config.hpp>

#include <cstdint>
#include <string>
#include <vector>

/// The one description of a model, read by plan/ (bytes, FLOPs) and by model/ (memory,
/// initialisation).
namespace trireme::architecture {

enum class Initialisation : std::uint8_t { zeros, ones, normal };

/// One global array of parameters.
struct ArraySpec {
  std::string name;                 ///< "layers.3.attention.query"
  std::vector<std::int64_t> shape;  ///< global, last axis contiguous
  int split_axis = -1;              ///< along which tensor parallelism cuts it; −1: replicated
  std::int64_t layer = 0;           ///< 0 … L−1; −1: before the layers, L: after them
  Initialisation initialisation = Initialisation::zeros;
  double standard_deviation = 0;  ///< of `normal`
  bool decay = false;             ///< weight decay: matrices only
  /// Lies directly behind the array before it, so that one matrix product serves both.
  bool follows_previous = false;
  /// So many heads of queries use each index of the split axis. A tensor rank holds the indices
  /// that its queries use; a group that the cut of the queries goes through is held on both sides
  /// of it.
  std::int64_t group = 1;

  std::int64_t elements() const;
};

struct Architecture {
  deck::ModelConfig model;
  std::vector<ArraySpec> arrays;  ///< in registry order; array numbers are positions in this list

  std::int64_t parameters() const;
  /// Parameters used in matrix products per token: look-ups and vectors not counted, logits
  /// counted.
  std::int64_t matmul_parameters() const;
  /// 6 N + 6 L h s (causal attention, half of the full square; recomputation not counted): design
  /// of MFU.
  double model_flops_per_token() const;
};

/// The arrays of the model that the deck describes; initialisation with output projections scaled
/// by 1/√(2L) (Radford et al. 2019, GPT-2).
Architecture describe(const deck::ModelConfig& model);

/// The standard deviation of initial weights.
inline constexpr double weight_deviation = 0.02;

}  // namespace trireme::architecture
