#pragma once

#include <trireme/architecture/placement.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace trireme::architecture {

/// Numbers of the tables of a vocabulary that pipeline ranks share. They follow the numbers of the
/// blocks, because these tables have passes of their own.
constexpr std::int64_t shared_token_table(std::int64_t layers) {
  return layers + 2;
}
constexpr std::int64_t shared_output_table(std::int64_t layers) {
  return layers + 3;
}
/// Number of the block whose passes complete an array's gradient, or of the table of a shared
/// vocabulary.
std::int64_t block_of(const Architecture& architecture, const RankArray& array);

/// Range of an arena of gradients or weights that holds a piece of an array.
struct GradientRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  const Piece* piece = nullptr;  ///< nullptr: the second gradient of a tied table
  std::int64_t block = 0;        ///< result of block_of()
  Stage stage = 0;
  bool split = false;
  bool alone = false;          ///< does not share buckets with other ranges
  bool shared = false;         ///< belongs to a shared layer
  bool partial = false;        ///< see ArraySpec::partial_gradient
  bool of_vocabulary = false;  ///< part of a vocabulary that pipeline ranks share
  bool frozen = false;         ///< has no gradient
  rules::Matrices matrix = rules::Matrices::none;  ///< see RankArray
  bool of_experts = false;                         ///< see RankArray
};

/// Arrays that are cut into buckets. `gradients`: arrays with gradients, and the second gradient of
/// a tied table. `weights`: all arrays. A trained array has the same buckets in both cuts.
enum class CutOf : std::uint8_t { gradients, weights };

/// Adjacent buckets of equal size with the same relative bounds. The bucket that backward passes
/// complete first is [begin, end), the next bucket is [2 begin − end, begin), and so on. A run of
/// several buckets is within one range.
struct BucketRun {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t count = 1;
  int owners = 1;                         ///< number of parts of each bucket
  int expert_ranks = 1;                   ///< consecutive data ranks with different buckets
  std::span<const GradientRange> ranges;  ///< ranges with elements in the run, ascending

  std::int64_t size() const { return end - begin; }
  /// Number of the part that a data rank owns.
  int owner(int data_rank) const { return data_rank / expert_ranks; }
};

/// Cuts an arena of gradients or weights into buckets without storing a list of them: a model on
/// few ranks may have millions of buckets. Data ranks own equal parts of each bucket, rank r part
/// r. If replicas divide the experts among e consecutive ranks, the buckets of experts have only
/// data_ranks() / e parts, and rank r owns part r / e: the other ranks have other experts.
class BucketCut {
 public:
  /// Arguments as for gradient_buckets(); `arrays` and `placement` must outlive this object.
  /// `by_block`: each bucket holds arrays of only one block, as a cut of weights requires.
  BucketCut(const Architecture& architecture, const Shard& shard,
            const std::vector<RankArray>& arrays, const Placement& placement,
            std::int64_t most_elements, int data_ranks, bool by_block = false,
            CutOf of = CutOf::gradients);

  int data_ranks() const { return data_ranks_; }
  /// Calls `use(rank)` for the data ranks that own this part of the run's buckets.
  template <class Use>
  void for_ranks(const BucketRun& run, int owner, const Use& use) const {
    const int end = std::min(data_ranks_, (owner + 1) * run.expert_ranks);
    for (int rank = owner * run.expert_ranks; rank < end; ++rank) use(rank);
  }
  std::int64_t layers() const { return layers_; }  ///< layers of the whole model
  bool tied() const { return tied_; }              ///< whether embeddings are tied
  const std::vector<RankArray>& arrays() const { return arrays_; }
  const Placement& placement() const { return placement_; }

  /// Calls `use` with all runs of buckets, in the order of gradient_buckets().
  void visit(const std::function<void(const BucketRun&)>& use) const;
  /// Calls `use` with each group of ranges that may share buckets, ascending.
  void visit_groups(const std::function<void(std::span<const GradientRange>)>& use) const;

 private:
  void cut(std::span<const GradientRange> ranges,
           const std::function<void(const BucketRun&)>& use) const;

  const std::vector<RankArray>& arrays_;
  const Placement& placement_;
  std::vector<GradientRange> ranges_;
  std::int64_t most_elements_;
  int data_ranks_;
  int expert_ranks_;
  bool by_block_;
  std::int64_t layers_;
  bool tied_;
};

/// First element of the run's first bucket that belongs to owner `owner` or a higher owner; run.end
/// if there is none.
std::int64_t bound_of(const BucketRun& run, int owner);

/// Calls `use(owner, begin, end)` for each non-empty part of the first bucket of the run,
/// ascending.
void visit_parts(const BucketRun& run,
                 const std::function<void(int, std::int64_t, std::int64_t)>& use);

}  // namespace trireme::architecture
