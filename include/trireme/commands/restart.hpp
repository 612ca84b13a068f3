#pragma once

#include <trireme/checkpoint/reader.hpp>
#include <trireme/deck/deck.hpp>
#include <trireme/grid/runtime.hpp>
#include <trireme/train/worker.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>

namespace trireme::commands {

/// Where a run starts from, as [checkpoint] restart says: a checkpoint, or initial weights.
/// docs/checkpoint.md tells the rules. Both must outlive this. All members are collective.
class Restart {
 public:
  /// Finds the checkpoint to go on from and holds the deck it was written with against this one:
  /// a UsageError lists all contradictions. The numbers are not read yet.
  Restart(grid::Runtime& runtime, const deck::Deck& deck);

  /// Loads it, each rank its slices. Damage found by any rank ends all ranks if the checkpoint was
  /// asked for by name; with "latest" it is passed over and the next one is tried. Without any the
  /// weights are initial ones. Checkpoints that the run does not go on from step aside. Returns the
  /// restored step; nothing for initial weights.
  std::optional<std::int64_t> load(train::Worker& worker);

 private:
  bool by_name() const;
  void choose();
  void compare(const checkpoint::Reader& reader);
  void start_fresh(train::Worker& worker);
  void make_room(std::int64_t from) const;
  void report(const checkpoint::RunState& state, bool optimizer_state) const;

  grid::Runtime& runtime_;
  const deck::Deck& deck_;
  std::string folder_;             ///< the candidate; "": none
  std::set<std::string> damaged_;  ///< on rank 0: those passed over
  std::string differences_;        ///< on rank 0: of the decks, as lines
};

/// Runs `local`, which must not communicate, on every rank. The message of the lowest rank that
/// found damage (an Error that is no UsageError), on all ranks; nothing if none did. Any other
/// exception is thrown by all ranks together. Collective.
std::optional<std::string> damage_found(grid::Runtime& runtime, const std::function<void()>& local);

/// The folder of `where` (find_checkpoint), verified but for its numbers and held against the
/// deck's model: a UsageError lists all contradictions. Collective.
std::string find_model(grid::Runtime& runtime, const deck::Deck& deck, const std::string& where);

}  // namespace trireme::commands
