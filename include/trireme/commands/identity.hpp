#pragma once

#include <trireme/checkpoint/reader.hpp>
#include <trireme/commands/resolve.hpp>
#include <trireme/deck/deck.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace trireme::commands {

/// The tokenizer, the token files and the kernels of a run, as its checkpoints store them
/// (RunState).
struct Identity {
  std::map<std::string, std::string> values;
  checkpoint::Files files;  ///< files of the tokenizer and of an imported model
};

/// Identity with the deck's tokenizer. UsageError if the tokenizer cannot be read.
Identity identity_of(const deck::Deck& deck);
/// Adds the fingerprints of the token files, the weights of the training files, and the form of
/// their images. `validation` is null if there is no file for evaluations.
void add_data(Identity& identity, const TrainingData& training,
              const data::TokenSource* validation);

/// Adds the special tokens that end the answers in the training files (data::answer_ends).
void add_answer_ends(Identity& identity, const deck::Deck& deck, const TrainingData& training);
/// Sets the description of the run's kernels, which determine the rounding.
void set_kernels(Identity& identity, const std::string& kernels);
/// Message about kernels that differ from the kernels of the checkpoint's run; "" without a
/// difference, or if the checkpoint does not store its kernels.
std::string kernel_difference(const checkpoint::Reader& reader, const Identity& identity);
/// The ids of the special tokens that end answers in a checkpoint's run.
std::vector<std::int64_t> answer_ends_of(const checkpoint::Reader& reader);
/// Adds the files of an imported model and the ends of answers from the checkpoint, and the form of
/// images if the token files have no images. No effect on an identity without a tokenizer.
void inherit(Identity& identity, const checkpoint::Reader& reader);

/// Message, with the remedy, if the checkpoint and the deck differ in the tokenizer or in the
/// end-of-document token; "" if no difference is known.
std::string tokenizer_difference(const checkpoint::Reader& reader, const deck::Deck& deck,
                                 const Identity& identity);
/// Message, with the remedy, about the first training file whose tokens or weight differ from the
/// checkpoint's run; "" if no file differs, or if the numbers of files differ.
std::string data_difference(const checkpoint::Reader& reader, const deck::Deck& deck,
                            const Identity& identity);
/// Message, with the remedy, if images of the training files became pixels or tokens in another way
/// than those of the checkpoint's run; "" if no difference is known.
std::string image_difference(const checkpoint::Reader& reader, const deck::Deck& deck,
                             const Identity& identity);
/// Whether the training files of the checkpoint's run and of `identity` have the same tokens,
/// weights and order. True if the checkpoint does not store its training files.
bool same_training_data(const checkpoint::Reader& reader, const Identity& identity);
/// Whether the validation files of the checkpoint's run and of `identity` have the same tokens.
/// True if the checkpoint does not store its validation file.
bool same_validation_data(const checkpoint::Reader& reader, const Identity& identity);

/// UsageError with the message of tokenizer_difference, unless it is "".
void expect_same_tokenizer(const checkpoint::Reader& reader, const deck::Deck& deck);

}  // namespace trireme::commands
