#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trireme::data {

/// Assigns each index n = 0, 1, … to one of several parts. Of the first n indices, a part whose
/// weight is the fraction w of all weights gets w n, with an error of at most 1.7 (½ for two
/// parts). The parts are the leaves of a binary tree (Huffman 1952: heavy parts near the root).
/// Thread-safe.
class Blend {
 public:
  /// Weights in any unit. UsageError unless there are 1 to 4096 weights, and each weight is
  /// positive, finite and at least 2^-33 of their sum.
  explicit Blend(std::span<const double> weights);

  struct Place {
    std::size_t part = 0;
    std::int64_t number = 0;  ///< index within the part
  };
  /// The part that gets index n, and the index within this part. Takes time O(number of parts).
  Place place(std::int64_t n) const;
  std::size_t parts() const { return parts_; }
  /// Number of indices that each part gets among the first n indices.
  std::vector<std::int64_t> counts(std::int64_t n) const;

 private:
  /// A node of the tree. `lighter`, `heavier`: indices of its children in nodes_; −1 for a leaf.
  struct Node {
    std::uint64_t weight = 0;
    std::int32_t lighter = -1;
    std::int32_t heavier = -1;
  };
  std::vector<Node> nodes_;  // leaves first, in the order of the parts; the root last
  std::size_t parts_;
};

/// A file and its weight in a blend.
struct BlendEntry {
  double weight = 1;
  std::string path;
};

/// The files of a deck's `train`: one path, or a list such as "0.7 a.h5, 0.3 b.h5". Without any
/// weight, the whole value is one path. UsageError for an entry without a weight in a list with
/// weights, and for an invalid weight or path.
std::vector<BlendEntry> parse_blend(const std::string& value);

}  // namespace trireme::data
