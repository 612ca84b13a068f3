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

/// Opens the files of [data] train; empty if none of them exists. UsageError if only some of them
/// exist.
TrainingData open_if_there(const deck::Deck& deck);
/// Opens the files of [data] train. The error for a missing file names the key, its place and the
/// remedy.
TrainingData open_training_data(const deck::Deck& deck);

/// One line per file of a blend: the number of the run's `of_run` samples that the file supplies,
/// and the number of its epochs. Empty for a single file.
std::vector<std::string> blend_text(const data::Samples& samples, std::int64_t of_run);

/// The tokenizer of [data].
std::unique_ptr<data::Tokenizer> tokenizer_of(const deck::Deck& deck);

/// If the deck does not set model.vocabulary, sets it to the largest number of ids of the token
/// files, plus special tokens of masked models. UsageError if the vocabulary is unknown or too
/// small, if a file was made with another tokenizer than the deck's, or if the deck freezes arrays
/// that cannot be frozen (expect_trainable).
void resolve_vocabulary(deck::Deck& deck, const TrainingData& data);

/// Opens the training files, if there are any, and resolves the vocabulary. If `elsewhere` (a plan
/// for another machine) and the vocabulary is known, mistakes in token files or tokenizer only
/// cause a warning, and the result is empty.
TrainingData resolve_data(deck::Deck& deck, bool elsewhere);

/// With layout = "auto", chooses the layout for `ranks` ranks, for the machine of [parallel]
/// machine, or else for `machine`. No effect with layout = "given". The vocabulary must be
/// resolved.
void resolve_layout(deck::Deck& deck, std::int64_t ranks, const plan::Machine& machine);

/// "data 2 · pipeline 1 · tensor 1, 1f1b, micro-batches of 1: …": the layout that layout = "auto"
/// has chosen, with the reason; "" if the deck gives the layout.
std::string layout_text(const deck::Deck& deck);

/// A deck and its training files; no files if they do not exist, or if resolve_data() ignores them.
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

/// Bytes of text of each token id of the model, for bits per byte. All 0, which disables bits per
/// byte, if `file` does not name its tokenizer and the deck's tokenizer has fewer ids than the
/// model.
std::vector<std::int32_t> bytes_of_token(const deck::Deck& deck, const data::TokenSource& file);

/// Documents, samples, padding and cut documents of a packed file.
std::string packing_text(const data::TokenSource& file, const data::PackedDocuments& packed);

/// Warns if the file's only document is cut, or if more than 5 % of the samples of several
/// documents are padding.
void warn_of_packing(const data::TokenSource& file, const data::PackedDocuments& packed);

/// The checkpoint folder `where`, or for "latest" the newest intact checkpoint in the deck's
/// checkpoint directory. UsageError if there is none.
std::string find_checkpoint(const deck::Deck& deck, const std::string& where);

/// UsageError if the checkpoint that [checkpoint] restart names does not exist, or if restart is
/// "none" although the checkpoint directory contains only an imported model.
void expect_restart(const deck::Deck& deck);

}  // namespace trireme::commands
