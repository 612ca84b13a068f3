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

/// The arenas of which a rank keeps only its own parts ([parallel] shard). Whole layers of such an
/// arena share windows in turn.
struct Division {
  bool weights = false;
  bool gradients = false;

  /// Whether each bucket holds arrays of only one layer.
  bool by_layer() const { return weights || gradients; }
  bool operator==(const Division&) const = default;
};

/// Gradients are divided only where a layer's gradients are complete after one pass: on one
/// pipeline rank with one micro-batch per step. Elsewhere they are first summed over the
/// micro-batches in whole arrays, because any other order of the sums would change their bits.
Division division_of(const deck::Config& config);

/// Memory layout of one of a rank's arenas. Resident arrays are whole, in the order of the arena.
/// For other arrays, a rank keeps its own parts of the buckets (Rajbhandari et al. 2020, "ZeRO",
/// section 5), and a layer's whole arrays are in a window while passes use them: one window for the
/// embedding and the head, and two for the other layers.
class Arrangement {
 public:
  /// A range of the arena with arrays of one layer, stored whole from `place` on.
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
    std::int64_t layer = 0;  ///< see layer_of()
    int window = -1;         ///< −1: all its arrays are resident
  };
  /// This rank's own part of a range, stored from `place` on.
  struct Own {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::int64_t place = 0;
  };

  /// Every array is resident, at its offset in the placement.
  explicit Arrangement(std::int64_t elements = 0) : elements_(elements) {}
  /// The parts of data rank `data_rank` of the arrays that begin before element `end`.
  /// `takes_turns`: which arrays are not resident.
  Arrangement(const BucketCut& cut, int data_rank, std::int64_t end,
              const std::function<bool(const GradientRange&)>& takes_turns);

  std::int64_t elements() const { return elements_; }
  bool has_windows() const { return has_windows_; }

  /// Memory offset where passes use element `at` of the arena.
  std::int64_t place(std::int64_t at) const;
  /// Memory offset where this rank, its owner, keeps element `at` of the arena.
  std::int64_t own_place(std::int64_t at) const;
  /// The parts of [begin, end) of the arena that this rank keeps, each in one piece; the whole
  /// range for resident arrays.
  std::vector<Own> kept(std::int64_t begin, std::int64_t end) const;

  const std::vector<Unit>& units() const { return units_; }
  /// The unit of a layer; −1 if no array here belongs to the layer.
  int unit_of(std::int64_t layer) const;
  const std::vector<Run>& runs() const { return runs_; }  ///< ascending
  const Run* run_of(std::int64_t at) const;               ///< null without units
  /// Own parts of the arrays that are not resident, ascending.
  const std::vector<Own>& own() const { return own_; }

 private:
  void find_runs(const BucketCut& cut, std::int64_t end,
                 const std::function<bool(const GradientRange&)>& takes_turns);
  void place_runs(std::int64_t own_elements);
  void find_own(const BucketCut& cut, int data_rank, std::int64_t own_begin);

  std::int64_t elements_ = 0;
  bool has_windows_ = false;
  std::vector<Unit> units_;
  std::pair<std::int64_t, int> alias_{0, -1};  ///< second layer of a unit
  std::vector<Run> runs_;
  std::vector<Own> own_;
};

/// Arrangements of a rank's weights and gradients. `cut`: buckets that are divided.
Arrangement arranged_weights(const BucketCut& cut, const Division& division, int data_rank);
Arrangement arranged_gradients(const BucketCut& cut, const Shard& shard, const Division& division,
                               bool cuts_tokens, int data_rank);

/// Elements of the own parts on the data rank with the most; each part of a bucket is rounded up to
/// a cache line.
std::int64_t most_own_elements(const BucketCut& cut, std::int64_t end,
                               const std::function<bool(const GradientRange&)>& takes_turns);

/// The units that the windows hold during a rank's passes. `trireme check` counts a run's gathers
/// with it.
class WindowTurns {
 public:
  static constexpr std::size_t windows = 3;

  explicit WindowTurns(const Arrangement& arrangement) : arrangement_(&arrangement) {}

  bool holds(int unit) const;
  /// Puts the unit into its window. Returns the unit that was there, or −1.
  int take(int unit);
  void clear() { holders_.fill(-1); }

 private:
  const Arrangement* arrangement_;
  std::array<int, windows> holders_{-1, -1, -1};
};

}  // namespace trireme::architecture
