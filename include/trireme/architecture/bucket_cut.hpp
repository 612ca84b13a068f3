#pragma once

#include <trireme/architecture/placement.hpp>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace trireme::architecture {

/// The part of the model whose passes complete an array's gradient: a layer, −1 for the embedding,
/// L for the head; of a shared vocabulary −2 for the token table and L + 1 for the output table.
inline constexpr std::int64_t shared_token_layer = -2;
inline std::int64_t shared_output_layer(std::int64_t layers) {
  return layers + 1;
}
std::int64_t layer_of(const Architecture& architecture, const LocalArray& array);

/// The gradient of a piece of an array in the arena.
struct GradientRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  const Piece* piece = nullptr;  ///< nullptr: the second gradient of a tied table
  std::int64_t layer = 0;        ///< as of layer_of()
  Stage stage = 0;
  bool split = false;
  bool alone = false;          ///< shares no bucket with others
  bool shared = false;         ///< of shared layers
  bool partial = false;        ///< as ArraySpec::partial_gradient
  bool of_vocabulary = false;  ///< of one that pipeline ranks share
  bool frozen = false;         ///< has no gradient
  bool hidden_matrix = false;  ///< as LocalArray
};

/// Arrays of a cut: those with gradients, or all weights without the second gradient of a tied
/// table. The buckets of arrays in both are the same.
enum class CutOf : std::uint8_t { gradients, weights };

/// Buckets of the same size, one directly before the other in the arena and all cut alike: the
/// first one that backward passes complete is [begin, end), the next [2 begin − end, begin), and
/// so on. More than one only within one range.
struct BucketRun {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t count = 1;
  std::span<const GradientRange> ranges;  ///< with elements in it, ascending

  std::int64_t size() const { return end - begin; }
};

/// How the gradient arena is cut into buckets, without a list of them: a model on few ranks may
/// have millions. Time and memory depend on the number of arrays only.
class BucketCut {
 public:
  /// Arguments as of gradient_buckets(); arrays and placement must outlive this. `by_layer`: no
  /// bucket holds arrays of several layers, which `of` weights needs.
  BucketCut(const Architecture& architecture, const Shard& shard,
            const std::vector<LocalArray>& arrays, const Placement& placement,
            std::int64_t most_elements, int data_ranks, bool by_layer = false,
            CutOf of = CutOf::gradients);

  int data_ranks() const { return data_ranks_; }
  std::int64_t layers() const { return layers_; }  ///< of the whole model
  bool tied() const { return tied_; }              ///< embeddings
  const std::vector<LocalArray>& arrays() const { return arrays_; }
  const Placement& placement() const { return placement_; }

  /// Calls `use` with all buckets in the order of gradient_buckets().
  void visit(const std::function<void(const BucketRun&)>& use) const;
  /// Calls `use` with the arrays that may share buckets, ascending.
  void visit_groups(const std::function<void(std::span<const GradientRange>)>& use) const;

 private:
  void cut(std::span<const GradientRange> ranges,
           const std::function<void(const BucketRun&)>& use) const;

  const std::vector<LocalArray>& arrays_;
  const Placement& placement_;
  std::vector<GradientRange> ranges_;
  std::int64_t most_elements_;
  int data_ranks_;
  bool by_layer_;
  std::int64_t layers_;
  bool tied_;
};

/// First element of the first bucket of the run that data ranks from `rank` on own.
std::int64_t bound_of(const BucketRun& run, int data_ranks, int rank);

/// Calls `use(rank, begin, end)` for each part of the first bucket of the run, ascending. Ranks
/// with an empty part are left out, so that the cost does not depend on their number.
void visit_parts(const BucketRun& run, int data_ranks,
                 const std::function<void(int, std::int64_t, std::int64_t)>& use);

}  // namespace trireme::architecture
