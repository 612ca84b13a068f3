#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trireme::data {

/// Which of several parts each number n = 0, 1, … falls to, so that of any first n numbers a part
/// with the share w has w n, but for 1.7 at most (for ½ if there are two parts). Nothing is stored
/// per number: the parts are the leaves of a binary tree (Huffman 1952: the heavy ones near the
/// root), and of m numbers at a node its lighter branch gets round(m · its share). Whole-number
/// arithmetic, so that every machine finds the same. Thread-safe.
class Blend {
 public:
  /// Weights in any unit. UsageError unless all are positive and finite, and at least 2^-32 of
  /// their sum.
  explicit Blend(std::span<const double> weights);

  struct Place {
    std::size_t part = 0;
    std::int64_t number = 0;  ///< how many numbers before this one fell to the part
  };
  /// Where number n falls; O(parts).
  Place place(std::int64_t n) const;
  std::size_t parts() const { return parts_; }

 private:
  /// A leaf has no lighter branch.
  struct Node {
    std::uint64_t weight = 0;
    std::int32_t lighter = -1;
    std::int32_t heavier = -1;
  };
  std::vector<Node> nodes_;  // leaves first, the root last
  std::size_t parts_;
};

/// A file and its weight in a blend.
struct BlendEntry {
  double weight = 1;
  std::string path;
};

/// What a deck's `train` names: one path, or "0.7 a.h5, 0.3 b.h5": a list whose entries are parted
/// by commas and each begin with a weight and a blank. UsageError if only some of them do.
std::vector<BlendEntry> parse_blend(const std::string& value);

}  // namespace trireme::data
