#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/commands/resolve.hpp>
#include <trireme/deck/deck.hpp>
#include <trireme/grid/runtime.hpp>
#include <trireme/plan/machine.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trireme::commands {

/// Common state of train, eval, generate and bench: the deck (equal on all ranks), its model, the
/// machine and the process grid.
struct Session {
  deck::Deck deck;
  TrainingData training;  ///< empty if the files are not opened or do not exist
  architecture::Architecture architecture;
  plan::Machine machine;
  std::unique_ptr<grid::Grid> grid;

  const deck::Config& config() const { return deck.config; }
};

enum class Ranks : std::uint8_t {
  /// The ranks form the axes of the deck, or with layout = "auto" the chosen axes.
  as_deck_says,
  /// Replicas of the deck's tensor, context and pipeline ranks; if the number of these ranks does
  /// not divide the number of all ranks, each rank is a replica.
  any_replicas,
  /// As any_replicas, without a context axis and with one stage on each pipeline rank.
  replicas_for_generation
};

/// Reads the deck on every rank; a mistake ends all ranks together. The vocabulary comes from the
/// deck, or else from the training files. Collective.
Session open_session(grid::Runtime& runtime, const std::string& deck_file,
                     const std::vector<std::string>& overrides, Ranks ranks);

/// Calls `find` on rank 0 and returns the result on all ranks. Collective.
std::string found_by_one(grid::Runtime& runtime, const std::function<std::string()>& find);

/// Error on all ranks if writing to standard output failed. Collective.
void expect_output_written(grid::Runtime& runtime);

}  // namespace trireme::commands
