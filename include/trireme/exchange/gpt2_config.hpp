#pragma once

#include <trireme/base/types.hpp>
#include <trireme/deck/deck.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace trireme::exchange {

/// What a config.json says of a model.
struct Gpt2Config {
  deck::ModelConfig model;  ///< its dropout is that of the residual branches
  double embedding_dropout = 0;
  double residual_dropout = 0;
  double attention_dropout = 0;

  /// Trireme has one dropout for all three.
  bool one_dropout() const {
    return embedding_dropout == residual_dropout && attention_dropout == residual_dropout;
  }
};

/// config.json of a GPT2LMHeadModel with weights of this type. `end_of_document`, if the tokenizer
/// has one, is the id that begins and ends texts.
std::string gpt2_config_text(const deck::ModelConfig& model, DType dtype,
                             std::optional<std::int64_t> end_of_document);

/// The inverse, with GPT2Config's defaults for keys that are not there. One UsageError names every
/// key whose value no Trireme model has, the value, and what is expected. `path` is for messages.
Gpt2Config parse_gpt2_config(const std::string& content, const std::string& path);

/// UsageError that shows both values of every key of [model] in which the deck is not the model of
/// config.json. Dropout may differ: it belongs to training, and the deck decides.
void expect_same_model(const Gpt2Config& config, const std::string& path, const deck::Deck& deck);

/// The section [model] of a deck for this model, without a line feed at its end.
std::string model_toml(const Gpt2Config& config);

}  // namespace trireme::exchange
