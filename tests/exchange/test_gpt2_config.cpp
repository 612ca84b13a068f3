#include <trireme/exchange/gpt2_config.hpp>

#include "support.hpp"

namespace trireme::exchange {
namespace {

using namespace testing;

const std::string golden = TRIREME_SOURCE_DIR "/tests/golden/gpt2_exchange/";

TEST(Gpt2Config, WhatIsWrittenReadsBack) {
  for (const bool tied : {true, false}) {
    auto model = odd_model(tied);
    model.dropout = 0.15;
    const auto content = gpt2_config_text(model, DType::bf16, 256);
    const auto config = parse_gpt2_config(content, "config.json");
    EXPECT_EQ(config.model, model);
    EXPECT_TRUE(config.one_dropout());
    expect_mentions(content, {"\"torch_dtype\": \"bfloat16\"", "\"eos_token_id\": 256"});
  }
}

TEST(Gpt2Config, ReadsWhatTransformersWrites) {
  const auto path = golden + "tied/config.json";
  auto model = parse_gpt2_config(read_file(path), path).model;
  EXPECT_EQ(model.feed_forward, 48) << "n_inner null is 4 n_embd";
  EXPECT_TRUE(model.tied_embeddings);
  const auto other = golden + "untied/config.json";
  model = parse_gpt2_config(read_file(other), other).model;
  EXPECT_EQ(model.feed_forward, 31);
  EXPECT_FALSE(model.tied_embeddings);
}

TEST(Gpt2Config, WhatTriremeDoesNotHaveIsNamedInOneError) {
  const auto error = message_of([] {
    parse_gpt2_config(R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 10, "n_head": 3,
        "n_positions": 0, "n_ctx": 7, "activation_function": "relu", "layer_norm_epsilon": 1e-6,
        "scale_attn_by_inverse_layer_idx": true, "attn_pdrop": 1.5})",
                      "here/config.json");
  });
  expect_mentions(error, {"here/config.json", "n_positions = 0, expected a whole number",
                          "vocab_size is missing", "n_embd = 10, expected a multiple of n_head = 3",
                          "activation_function = \"relu\", expected \"gelu_new\"",
                          "layer_norm_epsilon = 1e-06, expected 1e-05",
                          "scale_attn_by_inverse_layer_idx = true, expected false",
                          "attn_pdrop = 1.5", "n_ctx = 7"});
  expect_mentions(message_of([] { parse_gpt2_config(R"({"model_type": "llama"})", "c"); }),
                  {"model_type = \"llama\", expected \"gpt2\""});
  expect_mentions(message_of([] { parse_gpt2_config("{}", "c"); }), {"model_type is missing"});
  for (const char* content : {"", "[]", "{", "7", "\xff"})
    expect_mentions(message_of([&] { parse_gpt2_config(content, "c.json"); }),
                    {"c.json", "not a JSON object"});
}

deck::Deck deck_of(const std::string& model) {
  return deck::parse_deck(
      model +
          "\n[batch]\nglobal = 8\nmicro = 2\n[optimizer]\nlearning_rate = 1e-3\n"
          "[data]\ntrain = \"t.h5\"\n",
      "deck.toml");
}

TEST(Gpt2Config, TheSectionForADeckIsTheModel) {
  Gpt2Config config;
  config.model = odd_model(false);
  EXPECT_EQ(deck_of(model_toml(config)).config.model, config.model);
  config.embedding_dropout = 0.3;
  EXPECT_EQ(deck_of(model_toml(config)).config.model, config.model);
  expect_mentions(model_toml(config), {"embd_pdrop = 0.3"});
}

TEST(Gpt2Config, DifferencesFromTheDeckShowBothValues) {
  Gpt2Config config;
  config.model = odd_model(true);
  auto deck = deck_of(model_toml(config));
  EXPECT_EQ(message_of([&] { expect_same_model(config, "c.json", deck); }), "no error");
  config.model.layers = 5;
  config.model.vocabulary = 50257;
  config.model.tied_embeddings = false;
  config.model.dropout = 0.5;
  const auto error = message_of([&] { expect_same_model(config, "c.json", deck); });
  expect_mentions(
      error, {"c.json", "n_layer = 5", "[model] layers = 2 (deck.toml:3)", "vocab_size = 50257",
              "vocabulary = 503", "tie_word_embeddings = false", "tied_embeddings = true"});
  EXPECT_EQ(error.find("dropout"), std::string::npos) << "that is the deck's to say";
}

}  // namespace
}  // namespace trireme::exchange
