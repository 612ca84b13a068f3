#pragma once

#include <trireme/checkpoint/lineage.hpp>
#include <trireme/checkpoint/reader.hpp>
#include <trireme/commands/identity.hpp>
#include <trireme/deck/deck.hpp>
#include <trireme/grid/runtime.hpp>
#include <trireme/train/engine.hpp>

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace trireme::commands {

/// Result of a restart: the state with which a run begins.
struct Beginning {
  std::optional<std::int64_t> step;  ///< restored step; empty: initial weights
  /// On rank 0: the starts that the checkpoint stores, and the start of this job.
  std::vector<checkpoint::Start> starts;
  /// Identity of the run, with values inherited from the checkpoint (inherit).
  Identity identity;
};

/// Starts a run as [checkpoint] restart specifies: from a checkpoint, or from initial weights. The
/// rules are documented in docs/checkpoint.md. The public members are collective.
class Restart {
 public:
  /// Finds the checkpoint to resume from, and compares it with `deck` and with rank 0's `identity`:
  /// UsageError for contradictions. All arguments must outlive this object.
  Restart(grid::Runtime& runtime, const deck::Deck& deck, const Identity& identity);

  /// Loads the checkpoint, each rank its slices. A damaged checkpoint ends all ranks if the deck
  /// names it; with "latest", the next candidate is tried. Without a checkpoint, initialises the
  /// weights. Moves checkpoints from which the run does not continue to another folder.
  Beginning load(train::Engine& engine);

 private:
  bool by_name() const;
  void choose();
  void choose_shared();
  void pass_over(const std::string& folder, const std::string& reason);
  void compare(const checkpoint::Reader& reader);
  void compare_data(const checkpoint::Reader& reader);
  void start_fresh(train::Engine& engine);
  std::string refusal(const checkpoint::Manifest& local) const;
  std::vector<checkpoint::Start> begin_branch(const std::optional<checkpoint::Lineage>& tip) const;
  void report(const checkpoint::RunState& state, bool optimizer_state) const;

  grid::Runtime& runtime_;
  const deck::Deck& deck_;
  const Identity& identity_;
  std::string folder_;  ///< candidate folder; "": none
  std::int64_t local_before_ = std::numeric_limits<std::int64_t>::max();
  std::set<std::string> damaged_;  ///< on rank 0: skipped checkpoints
  std::string differences_;        ///< on rank 0: accepted differences of the decks, one per line
  std::vector<std::string> warnings_;  ///< on rank 0: warnings for report()
};

/// Runs `local`, which must not communicate, on every rank. Returns on all ranks the message of the
/// lowest rank that found damage (an Error other than UsageError); std::nullopt if none did. All
/// ranks throw any other exception together. Collective.
std::optional<std::string> damage_found(grid::Runtime& runtime, const std::function<void()>& local);

/// The checkpoint folder `where` (find_checkpoint), on all ranks. UsageError if its model or its
/// tokenizer contradicts the deck; a warning lists other differences that change results. `as_deck`
/// accepts another function of the same weights (Effect::function). Collective.
std::string find_model(grid::Runtime& runtime, const deck::Deck& deck, const std::string& where,
                       bool as_deck);

/// Copies the run's newest complete local checkpoint of a step after `after` and before `before`
/// into the checkpoint directory. A warning names each newer checkpoint that is rejected.
/// `refusal`, called on rank 0, returns the reason not to use a checkpoint, or "". Returns the step
/// of the copied checkpoint; std::nullopt if there is none. Collective.
std::optional<std::int64_t> collect_local_checkpoint(
    grid::Runtime& runtime, const deck::CheckpointConfig& config, std::int64_t after,
    std::int64_t before, const std::function<std::string(const checkpoint::Manifest&)>& refusal);

}  // namespace trireme::commands
