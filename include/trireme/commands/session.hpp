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

/// What train, eval and generate begin with: the deck, the same on every rank, the model it
/// describes, the machine it runs on and the process grid. Members that a command does not need
/// stay empty.
struct Session {
  deck::Deck deck;
  TrainingData training;  ///< its files may not have been opened
  architecture::Architecture architecture;
  plan::Machine machine;
  std::unique_ptr<grid::Grid> grid;

  const deck::Config& config() const { return deck.config; }
};

enum class Ranks : std::uint8_t {
  as_deck_says,       ///< the product of the deck's axes must be the number of ranks
  all_data_parallel,  ///< any number of ranks, each with the whole model
  /// Any number: replicas of the deck's tensor and pipeline ranks; where these do not divide the
  /// ranks, each has the whole model.
  any_replicas
};

/// Reads the deck on every rank and stops them together at a mistake. Vocabulary: from the deck,
/// else the training file, else (evaluation of a checkpoint elsewhere) the error says what to give.
Session open_session(grid::Runtime& runtime, const std::string& deck_file,
                     const std::vector<std::string>& overrides, Ranks ranks);

/// The checkpoint folder that `where` names: a folder itself, or the newest intact one of the
/// deck's directory for "latest". UsageError if there is none.
std::string find_checkpoint(const deck::Deck& deck, const std::string& where);

/// What `find` finds on rank 0, on all ranks: a run that goes on meanwhile may finish another
/// checkpoint, and each rank by itself could find a different one. Collective.
std::string found_by_one(grid::Runtime& runtime, const std::function<std::string()>& find);

/// For commands whose standard output is their result: an error on all ranks if it could not be
/// written. Collective.
void expect_output_written(grid::Runtime& runtime);

}  // namespace trireme::commands
