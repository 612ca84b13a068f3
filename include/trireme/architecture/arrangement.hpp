#pragma once

#include <trireme/architecture/buckets.hpp>
#include <trireme/deck/config.hpp>

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace trireme::architecture {

/// Arenas that the replicas divide among them ([parallel] shard); see Arrangement.
struct Division {
  bool weights = false;
  bool gradients = false;

  /// Whether each bucket holds arrays of only one block.
  bool by_block() const { return weights || gradients; }
  bool operator==(const Division&) const = default;
};

/// The division of a deck. Gradients are divided only if the gradients of a layer are complete
/// after one backward pass of a step.
Division division_of(const deck::Config& config);

/// Memory layout of an arena of a rank. Resident arrays are stored whole, in the order of the
/// arena. A rank keeps only its own parts of the buckets of other arrays (Rajbhandari et al. 2020,
/// "ZeRO", section 5); while passes use a layer, its whole arrays are in a window. The embedding
/// and the head have one window, the layers have two.
class Arrangement {
 public:
  /// A range of the arena with arrays of one block, stored whole from `place` on.
  struct Run {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::int64_t place = 0;
    int unit = 0;
    bool takes_turns = false;

    std::int64_t size() const { return end - begin; }
  };
  /// Arrays that a pass uses together: the arrays of a layer, the embedding or the head. With tied
  /// embeddings on one rank, embedding and head are one unit.
  struct Unit {
    std::int64_t block = 0;  ///< result of block_of()
    int window = -1;         ///< number of the unit's window; −1: all arrays are resident
  };
  /// A range of the arena that this rank keeps, stored from `place` on.
  struct Own {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::int64_t place = 0;
  };

  /// Arrangement in which every array is resident, at its offset in the placement.
  explicit Arrangement(std::int64_t elements = 0) : elements_(elements) {}
  /// Arrangement of the arrays that begin before element `end`, on data rank `data_rank`.
  /// `takes_turns`: whether the arrays of a range use windows instead of being resident.
  Arrangement(const BucketCut& cut, int data_rank, std::int64_t end,
              const std::function<bool(const GradientRange&)>& takes_turns);

  std::int64_t elements() const { return elements_; }
  bool has_windows() const { return has_windows_; }

  /// Memory offset at which passes use element `at` of the arena.
  std::int64_t place(std::int64_t at) const;
  /// Memory offset at which this rank, the owner, keeps element `at` of the arena.
  std::int64_t own_place(std::int64_t at) const;
  /// The parts of the range [begin, end) of the arena that this rank keeps, ascending, each
  /// contiguous in memory: resident arrays, and the rank's own parts of other arrays.
  std::vector<Own> kept(std::int64_t begin, std::int64_t end) const;

  const std::vector<Unit>& units() const { return units_; }
  /// Index of a block's unit in units(); −1 if no array of the block is in this arrangement.
  int unit_of(std::int64_t block) const;
  const std::vector<Run>& runs() const { return runs_; }  ///< ascending
  const Run* run_of(std::int64_t at) const;  ///< run with element `at` of the arena; null: none
  /// This rank's own parts of the arrays that are not resident, ascending.
  const std::vector<Own>& own() const { return own_; }

 private:
  void find_runs(const BucketCut& cut, std::int64_t end,
                 const std::function<bool(const GradientRange&)>& takes_turns);
  void place_runs(std::int64_t own_elements);
  void find_own(const BucketCut& cut, int data_rank, std::int64_t own_begin);

  std::int64_t elements_ = 0;
  bool has_windows_ = false;
  std::vector<Unit> units_;
  /// Second block of the unit of tied embeddings, and the index of this unit; −1: none.
  std::pair<std::int64_t, int> alias_{0, -1};
  std::vector<Run> runs_;
  std::vector<Own> own_;
};

/// Arrangements of a rank's weights and gradients. `cut`: buckets whose parts data ranks own.
/// `cuts_tokens`: whether sequence parallelism is used.
Arrangement arranged_weights(const BucketCut& cut, const Division& division, int data_rank);
Arrangement arranged_gradients(const BucketCut& cut, const Shard& shard, const Division& division,
                               bool cuts_tokens, int data_rank);

/// Largest number of elements that a data rank owns in ranges that begin before element `end` and
/// for which `takes_turns` is true. Each part of a bucket is rounded up by aligned_elements().
std::int64_t most_own_elements(const BucketCut& cut, std::int64_t end,
                               const std::function<bool(const GradientRange&)>& takes_turns);

/// Keeps track of the unit that each window holds during a rank's passes.
class WindowTurns {
 public:
  static constexpr std::size_t windows = 3;

  explicit WindowTurns(const Arrangement& arrangement) : arrangement_(&arrangement) {}

  bool holds(int unit) const;
  /// Puts the unit into its window. Returns the unit that the window held before; −1 if the window
  /// was empty or if the unit has no window.
  int take(int unit);
  void clear() { holders_.fill(-1); }

 private:
  const Arrangement* arrangement_;
  std::array<int, windows> holders_{-1, -1, -1};
};

}  // namespace trireme::architecture
