#include "configs.hpp"

/// config.json of the families that follow llama, and of unsupported models.
namespace trireme::hugging_face {
namespace {

using namespace testing;

/// The config.json of a llama changed to another family, with more keys.
std::string as(const std::string& model_type, const std::string& more = "") {
  std::string out = llama;
  out.replace(out.find("\"llama\""), 7, '"' + model_type + '"');
  return out + (more.empty() ? "" : ", ") + more + "}";
}

deck::ModelConfig model_as(const std::string& model_type, const std::string& more = "") {
  return parse_config(as(model_type, more), "c").model;
}

TEST(ConfigFamilies, MissingKeysTakeTheDefaultsOfTheFamily) {
  for (const char* type : {"llama", "qwen2", "qwen3", "mistral", "olmo2"}) {
    const auto model = model_as(type);
    EXPECT_EQ(model.family, parse<Family>(type));
    EXPECT_EQ(model.norm_epsilon, model.family == Family::olmo2 ? 1e-5 : 1e-6) << type;
    EXPECT_EQ(model.rope_theta, 10000) << type;
    EXPECT_FALSE(model.tied_embeddings) << type;
    EXPECT_EQ(model.head_size(), model.family == Family::qwen3 ? 128 : 24) << type;
    EXPECT_EQ(model.explicit_head_size, model.family == Family::qwen3 ? 128 : 0) << type;
    EXPECT_EQ(model.window, model.family == Family::mistral ? 4096 : 0) << type;
    EXPECT_EQ(model_as(type, R"("head_dim": 24)").explicit_head_size, 0) << "hidden / heads";
    EXPECT_EQ(model_as(type, R"("head_dim": 40)").head_size(), 40);
    std::string silent = as(type);
    silent.replace(silent.find("\"num_key_value_heads\": 3,"), 25, "");
    if (model.family == Family::llama || model.family == Family::olmo2)
      EXPECT_EQ(parse_config(silent, "c").model.key_value_heads, 6);
    else
      expect_mentions(refusal(silent), {model.family == Family::mistral
                                            ? "num_key_value_heads = 8, expected a divisor"
                                            : "num_key_value_heads = 32, expected a divisor"});
    std::string null = as(type);
    null.replace(null.find("heads\": 3"), 9, "heads\": null");
    EXPECT_EQ(parse_config(null, "c").model.key_value_heads, 6) << type;
  }
}

TEST(ConfigFamilies, WindowCoversAllLayersOrNone) {
  EXPECT_EQ(model_as("mistral", R"("sliding_window": 9)").window, 9);
  EXPECT_EQ(model_as("mistral", R"("sliding_window": null)").window, 0);
  expect_mentions(refusal(as("mistral", R"("sliding_window": 0)")),
                  {"sliding_window = 0, expected a whole number from 1", "or null"});
  EXPECT_EQ(model_as("llama", R"("sliding_window": 9)").window, 0) << "a llama has no such key";
  for (const char* type : {"qwen2", "qwen3"}) {
    const auto window = [&](const std::string& keys) { return model_as(type, keys).window; };
    const std::string use = R"("use_sliding_window": true, "sliding_window": 9)";
    EXPECT_EQ(window(R"("sliding_window": 9, "max_window_layers": 1)"), 0) << "not in use";
    EXPECT_EQ(window(use), 0) << "from layer 28 on, where the model has 2";
    EXPECT_EQ(window(use + R"(, "max_window_layers": 2)"), 0);
    EXPECT_EQ(window(use + R"(, "max_window_layers": 0)"), 9);
    EXPECT_EQ(window(R"("use_sliding_window": true, "max_window_layers": 0)"), 4096);
    EXPECT_EQ(window(R"("use_sliding_window": true, "sliding_window": null,
                        "max_window_layers": 0)"),
              0);
    EXPECT_EQ(window(use + R"(, "max_window_layers": 0,
                        "layer_types": ["sliding_attention", "sliding_attention"])"),
              9);
    expect_mentions(refusal(as(type, use + R"(, "max_window_layers": 1)")),
                    {"max_window_layers = 1, expected 0 or num_hidden_layers"});
    expect_mentions(refusal(as(type, use + R"(, "max_window_layers": 0,
                        "layer_types": ["full_attention", "sliding_attention"])")),
                    {"layer_types = [\"full_attention\",\"sliding_attention\"], expected "
                     "[\"sliding_attention\",\"sliding_attention\"]"});
    expect_mentions(refusal(as(type, R"("use_sliding_window": 1)")),
                    {"use_sliding_window = 1, expected true or false"});
  }
  expect_mentions(refusal(as("qwen3", R"("attention_bias": true)")),
                  {"attention_bias = true, expected false"});
}

/// A deck of odd_llama or odd_model with these lines added to [model].
deck::Deck changed_deck(const deck::ModelConfig& model, const std::string& lines) {
  return deck_of(model_toml(file_of(model)) + "\n" + lines);
}

TEST(ConfigFamilies, RejectPropertiesThatConfigsCannotExpress) {
  using Lines = std::pair<deck::ModelConfig, std::string>;
  const std::vector<std::pair<Lines, std::string>> wrong{
      {{odd_llama(true), "norm = \"layer\""},
       "[model] norm = \"layer\" (deck.toml:14), expected \"rms\""},
      {{odd_llama(true), "window = 9"}, "[model] window = 9 (deck.toml:14), expected 0"},
      {{odd_llama(true), "biases = \"query_key_value\""}, "expected \"none\""},
      {{odd_llama(true), "query_key_norm = \"head\""},
       "query_key_norm = \"head\" (deck.toml:14), expected \"none\""},
      {{odd_llama(true, Family::qwen2), "biases = \"none\""}, "expected \"query_key_value\""},
      {{odd_llama(true, Family::qwen3), "query_key_norm = \"none\""}, "expected \"head\""},
      {{odd_llama(true, Family::mistral), "positions = \"learned\""}, "expected \"rotary\""},
      {{odd_model(true), "key_value_heads = 2"}, "key_value_heads = 2 (deck.toml:13), expected 6"},
      {{odd_model(true), "head_size = 32"}, "head_size = 32 (deck.toml:13), expected 0"},
      {{odd_model(true), "activation = \"swiglu\""}, "expected \"gelu\""},
      {{odd_bert(true, SentenceLoss::none), "norm_placement = \"pre\""}, "expected \"post\""}};
  for (const auto& [deck, message] : wrong) {
    const auto changed = changed_deck(deck.first, deck.second);
    expect_mentions(message_of([&] { expect_exportable(changed); }),
                    {"deck.toml: transformers' ", message, "cannot be exported"});
    expect_mentions(message_of([&] { expect_same_model(file_of(deck.first), changed); }),
                    {"c.json describes another model", message});
  }
}

TEST(ConfigFamilies, ExportPropertiesThatConfigsExpress) {
  for (const auto& [model, lines] : std::vector<std::pair<deck::ModelConfig, std::string>>{
           {odd_llama(true), "gelu = \"exact\""},  // the model has no GELU
           {odd_llama(true), "head_size = 32"},
           {odd_llama(true), "shared_layers = 1"},
           {odd_llama(true, Family::qwen2), "head_size = 24"},
           {odd_model(true), "head_size = 24\nrope_theta = 5.0"},
           {odd_bert(true, SentenceLoss::next), "masked_share = 0.3"}})
    EXPECT_EQ(message_of([&] { expect_exportable(changed_deck(model, lines)); }), "no error")
        << lines;
  const auto uneven = deck_of(
      "[model]\nfamily = \"llama\"\nlayers = 2\nhidden = 148\nheads = 6\nhead_size = 24\n"
      "sequence = 61\nvocabulary = 503");
  expect_mentions(message_of([&] { expect_exportable(uneven); }),
                  {"hidden_size = 148, expected a multiple of num_attention_heads = 6"});
}

TEST(ConfigFamilies, RejectSharedLayersOnImport) {
  const auto model = odd_llama(true);
  const auto deck = changed_deck(model, "shared_layers = 2");
  expect_mentions(message_of([&] { expect_same_model(file_of(model), deck); }),
                  {"its own weights", "[model] shared_layers = 2 (deck.toml:14)"});
}

}  // namespace
}  // namespace trireme::hugging_face
