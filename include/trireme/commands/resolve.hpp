#pragma once

#include <trireme/data/samples.hpp>
#include <trireme/data/token_source.hpp>
#include <trireme/data/tokenizer.hpp>
#include <trireme/deck/deck.hpp>
#include <trireme/plan/machine.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace trireme::commands {

/// The token files of [data] train, with their weights.
struct TrainingData {
  std::vector<std::unique_ptr<data::TokenSource>> files;  ///< empty: not opened
  std::vector<double> weights;

  std::vector<data::WeightedSource> parts() const;
  std::int64_t tokens() const;  ///< of all files
};

/// Opens the files of [data] train; none if they do not all exist.
TrainingData open_if_there(const deck::Deck& deck);
/// The same, but the error for a missing one names the key, its place and the remedy.
TrainingData open_training_data(const deck::Deck& deck);

/// The tokenizer of [data].
std::unique_ptr<data::Tokenizer> tokenizer_of(const deck::Deck& deck);

/// Sets model.vocabulary from the token files where the deck is silent, and holds both against each
/// other where it is not. Without files the deck must say it, and with files that do not. The
/// deck's tokenizer must be known, and the files'.
void resolve_vocabulary(deck::Deck& deck, const TrainingData& data);

/// The deck as `ranks` ranks of the machine would run it, without MPI; 0: as many as its axes
/// multiply to. The token file need not exist if the deck names the vocabulary.
deck::Deck deck_for_ranks(const std::string& path, const std::vector<std::string>& overrides,
                          std::int64_t ranks, const plan::Machine& machine);

/// The file of [data] validation, whose ids the model must know.
std::unique_ptr<data::TokenSource> open_validation_file(const deck::Deck& deck);

/// Bytes of text per token id of the model, to count bits per byte. All 0, and so no bits per byte,
/// if `file` does not say which tokenizer made it and the deck's has fewer ids than the model.
std::vector<std::int32_t> bytes_of_token(const deck::Deck& deck, const data::TokenSource& file);

}  // namespace trireme::commands
