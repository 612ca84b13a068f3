#pragma once

#include <trireme/data/packed_documents.hpp>
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
  std::int64_t tokens() const;  ///< number of tokens in all files
};

/// Opens the files of [data] train; empty if no file exists. UsageError if only some files exist.
TrainingData open_if_there(const deck::Deck& deck);
/// Opens the files of [data] train. UsageError with the remedy for a missing file.
TrainingData open_training_data(const deck::Deck& deck);

/// A line per file of a blend: samples and epochs of the file in a run of `of_run` samples. Empty
/// for a single file.
std::vector<std::string> blend_text(const data::Samples& samples, std::int64_t of_run);

/// The tokenizer of [data].
std::unique_ptr<data::Tokenizer> tokenizer_of(const deck::Deck& deck);

/// If the deck does not set model.vocabulary, sets it to the largest number of ids of the token
/// files, plus special tokens of masked models. UsageError if the vocabulary is unknown or too
/// small, or if a file was made with another tokenizer; errors of architecture::expect_trainable().
void resolve_vocabulary(deck::Deck& deck, const TrainingData& data);

/// Opens the training files, if they exist, and resolves the vocabulary. If `elsewhere` (a plan for
/// another machine) and the vocabulary is known, a mistake in token files or tokenizer only causes
/// a warning, and the result is empty.
TrainingData resolve_data(deck::Deck& deck, bool elsewhere);

/// With layout = "auto", chooses the layout for `ranks` ranks of the machine of [parallel] machine,
/// or else of `machine`. The vocabulary must be resolved.
void resolve_layout(deck::Deck& deck, std::int64_t ranks, const plan::Machine& machine);

/// "data 2 · pipeline 1 · tensor 1, 1f1b, micro-batches of 1: …": the layout that layout = "auto"
/// has chosen, with the reason; "" if the deck gives the layout.
std::string layout_text(const deck::Deck& deck);

/// A resolved deck, and the training files as resolve_data() returns them.
struct PlannedRun {
  deck::Deck deck;
  TrainingData training;
};

/// The deck, resolved without MPI for `ranks` ranks of `machine`; `ranks` = 0: the product of the
/// deck's axes, a UsageError with layout = "auto". `elsewhere`: see resolve_data().
PlannedRun deck_for_ranks(const std::string& path, const std::vector<std::string>& overrides,
                          std::int64_t ranks, const plan::Machine& machine, bool elsewhere);

/// Opens the file of [data] validation. UsageError if the file is missing, was made with another
/// tokenizer, or has more ids than the model.
std::unique_ptr<data::TokenSource> open_validation_file(const deck::Deck& deck);

/// Bytes of text of each token id of the model [V], for bits per byte. All 0, which disables bits
/// per byte, if `file` does not name its tokenizer and the deck's tokenizer has fewer than V ids.
std::vector<std::int32_t> bytes_of_token(const deck::Deck& deck, const data::TokenSource& file);

/// Documents or pairs, samples, padding and what is cut, of a file with packed documents or pairs.
std::string packing_text(const data::TokenSource& file, const data::Windows& windows);

/// Warns if a file's only document or more than 1 % of its pairs are cut, or if several documents
/// or pairs need more than 5 % padding.
void warn_of_packing(const data::TokenSource& file, const data::Windows& windows);

/// The checkpoint folder `where`, or for "latest" the result of checkpoint::latest() for the deck's
/// checkpoint directory. UsageError if there is none.
std::string find_checkpoint(const deck::Deck& deck, const std::string& where);

/// UsageError if [checkpoint] restart names a missing checkpoint, or if restart = "none" and the
/// checkpoint directory contains only an imported model.
void expect_restart(const deck::Deck& deck);

}  // namespace trireme::commands
