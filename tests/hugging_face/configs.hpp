#pragma once

#include <trireme/hugging_face/config_json.hpp>

#include "support.hpp"

namespace trireme::hugging_face::testing {

/// The error message for a config.json.
inline std::string refusal(const std::string& content) {
  return message_of([&] { parse_config(content, "here/config.json"); });
}

/// A config.json of a supported llama, without its closing brace.
inline const std::string llama =
    R"({"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 144,
    "num_attention_heads": 6, "num_key_value_heads": 3, "intermediate_size": 333,
    "max_position_embeddings": 61, "vocab_size": 503)";

inline deck::Deck deck_of(const std::string& model) {
  return deck::parse_deck(
      model +
          "\n[batch]\nglobal = 8\nmicro = 2\n[optimizer]\nlearning_rate = 1e-3\n"
          "[data]\ntrain = \"t.h5\"\n",
      "deck.toml");
}

inline ModelFile file_of(const deck::ModelConfig& model) {
  return parse_config(config_text(model, DType::fp32, {}), "c.json");
}

/// One of Qwen's models with a window in all layers.
inline deck::ModelConfig with_window(deck::ModelConfig model) {
  model.window = 5;
  return model;
}

}  // namespace trireme::hugging_face::testing
