#pragma once

#include <cstdint>
#include <string>
#include <vector>

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
  /// Is stored directly after the previous array, so that one matrix product serves both.
  bool follows_previous = false;
  /// Number of query heads that use each index of the split axis. A tensor rank holds the indices
  /// that its queries use; a group that the cut of the queries divides is held on both sides of it.
  std::int64_t group = 1;
  /// Every tensor rank holds it, and each adds to its gradient what its own heads contribute.
  bool partial_gradient = false;
  /// Layers `layer`, `layer` + n, … have it, with n = [model] shared_layers. Every pipeline rank
  /// holds it, and adds to its gradient what its own layers contribute.
  bool shared = false;
  /// The operation uses the array of this name that an earlier one has.
  bool tied = false;

  std::int64_t elements() const {
    std::int64_t n = 1;
    for (const std::int64_t extent : shape) n *= extent;
    return n;
  }
};

/// The standard deviation of initial weights.
inline constexpr double weight_deviation = 0.02;

inline ArraySpec matrix(std::string name, std::vector<std::int64_t> shape, int split_axis,
                        double deviation = weight_deviation) {
  return {std::move(name),        std::move(shape), split_axis, 0,
          Initialisation::normal, deviation,        true};
}
inline ArraySpec vector(std::string name, std::vector<std::int64_t> shape, int split_axis,
                        Initialisation init = Initialisation::zeros) {
  return {std::move(name), std::move(shape), split_axis, 0, init};
}

}  // namespace trireme::architecture
