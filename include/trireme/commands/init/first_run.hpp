#pragma once

#include <trireme/base/types.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/plan/machine.hpp>
#include <trireme/plan/search.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::commands {

/// Tokens per parameter that give the lowest loss for a given amount of computation (Hoffmann et
/// al. 2022, arXiv 2203.15556).
inline constexpr double tokens_per_parameter = 20;
/// Epochs after which further epochs hardly lower the loss (Muennighoff et al. 2023, arXiv
/// 2305.16264: up to 4 are as good as new text, and after 16 the gain is small).
inline constexpr double most_epochs = 16;
/// Epochs for fine-tuning a trained model.
inline constexpr double tuning_epochs = 3;

/// Inputs of a first run.
struct Wish {
  std::string deck;               ///< path of the deck
  std::string name;               ///< name of the run: the deck's file name without extension
  std::string launcher;           ///< words before `trireme train`; "" for one rank
  std::string train;              ///< token file
  std::string validation;         ///< token file; "": none
  std::string tokenizer;          ///< value of [data] tokenizer
  std::int64_t tokens = 0;        ///< number of tokens of the training file
  std::int64_t held_out = 0;      ///< number of tokens of the validation file
  std::int64_t vocabulary = 0;    ///< number of ids of the tokenizer or, if larger, of the file
  std::int64_t longest_chat = 0;  ///< tokens of the longest conversation; 0: the data are texts
  std::string family = "llama";
  deck::ModelConfig model;     ///< properties of the family, or the imported model
  std::string imported;        ///< folder of a Hugging Face model to tune; "": a new model
  std::string imported_model;  ///< TOML text of section [model] for the imported model
  bool lora = false;           ///< fine-tune with low-rank adapters
  std::int64_t ranks = 1;
  Seconds seconds = 0;    ///< wanted duration
  plan::Machine machine;  ///< machine, with its speeds
};

/// The quantity that limits the size of a first run.
enum class Bound : std::uint8_t { time, data, memory };

/// Result of choose_first_run().
struct FirstRun {
  std::string deck;  ///< commented text of the deck
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t sequence = 0;
  std::int64_t parameters = 0;
  std::int64_t samples = 0;  ///< samples per step
  std::int64_t steps = 0;
  double epochs = 0;
  double learning_rate = 0;
  Bound bound = Bound::time;
  plan::Candidate layout;  ///< fastest layout

  std::int64_t tokens() const { return steps * samples * sequence; }
  Seconds seconds() const { return static_cast<Seconds>(steps) * layout.seconds(); }
};

/// Chooses batch, steps, learning rate and layout, and unless a model is imported, the largest
/// model that the wanted time, the text and the memory allow. UsageError if the text is too short,
/// or if no model fits the ranks and the memory.
FirstRun choose_first_run(const Wish& wish);

/// Vocabulary size of a BPE for a text of this size; 0: use the tokenizer "bytes".
std::int64_t suitable_vocabulary(std::int64_t text_bytes);

}  // namespace trireme::commands
