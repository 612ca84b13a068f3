#pragma once

#include <trireme/checkpoint/reader.hpp>
#include <trireme/commands/resolve.hpp>
#include <trireme/deck/deck.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace trireme::commands {

/// The tokenizer and the token files of a run, as its checkpoints store them (RunState). A
/// checkpoint's weights are only meaningful with its tokenizer, and its position in the data only
/// with its token files.
struct Identity {
  std::map<std::string, std::string> values;
  checkpoint::Files files;  ///< files of the tokenizer
};

/// Identity with the deck's tokenizer. UsageError if it cannot be read.
Identity identity_of(const deck::Deck& deck);
/// Adds fingerprints of the token files. `validation` is null if there is no file for evaluations.
void add_data(Identity& identity, const TrainingData& training,
              const data::TokenSource* validation);

/// Adds the special tokens that end the answers in these files (data::answer_ends).
void add_answer_ends(Identity& identity, const deck::Deck& deck, const TrainingData& training);
/// The special tokens that end answers in a checkpoint's run.
std::vector<std::int64_t> answer_ends_of(const checkpoint::Reader& reader);
/// Adds what a run inherits from the checkpoint that it continues: the files of an imported model,
/// and the ends of answers that were trained earlier. No effect on an identity without a tokenizer,
/// as on ranks that write no files.
void inherit(Identity& identity, const checkpoint::Reader& reader);

/// Message that names the checkpoint's tokenizer, the deck's and the remedy; "" if they are equal.
std::string tokenizer_difference(const checkpoint::Reader& reader, const deck::Deck& deck,
                                 const Identity& identity);
/// Message that names the first training file whose tokens differ from the checkpoint's run, and
/// the remedy; "" if there is none, or if the numbers of files differ.
std::string data_difference(const checkpoint::Reader& reader, const deck::Deck& deck,
                            const Identity& identity);
/// Whether the token files of both runs have the same content and weights, whatever their paths.
bool same_training_data(const checkpoint::Reader& reader, const Identity& identity);
/// Whether the evaluations of both runs read the same tokens.
bool same_validation_data(const checkpoint::Reader& reader, const Identity& identity);

/// UsageError unless the deck's tokenizer is the checkpoint's.
void expect_same_tokenizer(const checkpoint::Reader& reader, const deck::Deck& deck);

}  // namespace trireme::commands
