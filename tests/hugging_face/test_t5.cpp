#include <trireme/hugging_face/kept_files.hpp>

#include "configs.hpp"

/// config.json of T5.
namespace trireme::hugging_face {
namespace {

using namespace testing;

/// A config.json with the keys that have no default, without its closing brace.
const std::string t5 =
    R"({"model_type": "t5", "num_layers": 2, "d_model": 144, "num_heads": 6, "d_ff": 333,
    "vocab_size": 503)";

std::string t5_with(const std::string& more = "") {
  return t5 + (more.empty() ? "" : ", ") + more + "}";
}

deck::ModelConfig t5_model(const std::string& more = "") {
  return parse_config(t5_with(more), "c").model;
}

/// A deck whose section [data] is the last of the model's sections.
deck::Deck t5_deck(const ModelFile& file) {
  return deck::parse_deck(model_toml(file) +
                              "\ntrain = \"t.h5\"\n[batch]\nglobal = 8\nmicro = 2\n"
                              "[optimizer]\nlearning_rate = 1e-3\n",
                          "deck.toml");
}

TEST(ConfigT5, MissingKeysTakeTheDefaultsOfT5Config) {
  const ModelFile file = parse_config(t5_with(), "c");
  const deck::ModelConfig& m = file.model;
  EXPECT_EQ(m.family, Family::t5);
  EXPECT_EQ(m.encoder.layers, 2);
  EXPECT_EQ(m.layers, 2);
  EXPECT_EQ(m.head_size(), 64);
  EXPECT_EQ(m.key_value_heads, 6);
  EXPECT_EQ(m.relative_buckets, 32);
  EXPECT_EQ(m.relative_distance, 128);
  EXPECT_EQ(m.norm_epsilon, 1e-6);
  EXPECT_EQ(m.dropout, 0.1);
  EXPECT_EQ(m.activation, Activation::relu);
  EXPECT_TRUE(m.tied_embeddings);
  EXPECT_TRUE(m.scaled_logits);
  EXPECT_EQ(m.encoder.sequence, 512);
  EXPECT_EQ(m.sequence, 114);
  EXPECT_EQ(m.query_pre_attention_scalar, 1);
  EXPECT_EQ(file.start_token, 0);
  EXPECT_EQ(file.end_token, 1);
  EXPECT_EQ(t5_model(R"("num_decoder_layers": null)").layers, 2);
  EXPECT_EQ(t5_model(R"("num_decoder_layers": 5)").layers, 5);
  EXPECT_EQ(t5_model(R"("d_kv": 24)").explicit_head_size, 0) << "hidden / heads";
  EXPECT_EQ(t5_model(R"("n_positions": 61)").sequence, 14);
  EXPECT_FALSE(t5_model(R"("tie_word_embeddings": false)").scaled_logits);
  EXPECT_TRUE(
      t5_model(R"("tie_word_embeddings": false, "scale_decoder_outputs": true)").scaled_logits);
  EXPECT_FALSE(t5_model(R"("scale_decoder_outputs": false)").scaled_logits);
}

TEST(ConfigT5, FeedForwardHasTheActivationsOfTransformers) {
  using Pair = std::pair<const char*, Activation>;
  for (const auto& [name, activation] :
       {Pair{"relu", Activation::relu}, Pair{"gated-gelu", Activation::geglu},
        Pair{"gated-silu", Activation::swiglu}, Pair{"gelu_new", Activation::gelu}}) {
    const auto model = t5_model(text(R"("feed_forward_proj": ")", name, '"'));
    EXPECT_EQ(model.activation, activation);
    EXPECT_EQ(model.gelu, Gelu::tanh);
    EXPECT_EQ(json::parse(config_text(model, DType::fp32, {}))["feed_forward_proj"], name);
  }
  EXPECT_EQ(refusal(t5_with(R"("feed_forward_proj": "gated-gelu", "dense_act_fn": "gelu_new",
                               "is_gated_act": true)")),
            "no error");
  expect_mentions(refusal(t5_with(R"("feed_forward_proj": "gelu")")),
                  {"feed_forward_proj = \"gelu\", expected \"relu\", \"gated-gelu\""});
  expect_mentions(refusal(t5_with(R"("dense_act_fn": "gelu", "is_gated_act": true)")),
                  {"dense_act_fn = \"gelu\", expected the value that follows",
                   "is_gated_act = true, expected the value that follows"});
}

TEST(ConfigT5, KeysAreWrittenAndReadBack) {
  for (const bool tied : {true, false}) {
    const deck::ModelConfig model = odd_t5(tied);
    const json file = json::parse(config_text(model, DType::bf16, {9}, 8));
    EXPECT_EQ(file["architectures"], json::array({"T5ForConditionalGeneration"}));
    EXPECT_EQ(file["num_layers"], 2);
    EXPECT_EQ(file["num_decoder_layers"], 3);
    EXPECT_EQ(file["d_kv"], 32);
    EXPECT_EQ(file["n_positions"], 61);
    EXPECT_EQ(file["tie_word_embeddings"], tied);
    EXPECT_EQ(file["scale_decoder_outputs"], tied);
    EXPECT_EQ(file["is_encoder_decoder"], true);
    EXPECT_EQ(file["eos_token_id"], 9);
    EXPECT_EQ(file["bos_token_id"], nullptr);
    EXPECT_EQ(file["pad_token_id"], 8);
    EXPECT_EQ(file["decoder_start_token_id"], 8);
    const ModelFile back = parse_config(file.dump(), "c");
    EXPECT_EQ(back.model, model);
    EXPECT_EQ(back.start_token, 8);
    EXPECT_EQ(back.end_token, 9);
    EXPECT_TRUE(back.unknown.empty());
    const auto deck = t5_deck(back);
    EXPECT_EQ(deck.config.model, model);
    EXPECT_EQ(deck.config.data.start_token, 8);
    EXPECT_EQ(deck.config.data.end_token, 9);
    EXPECT_EQ(message_of([&] { expect_exportable(deck); }), "no error");
    EXPECT_EQ(message_of([&] { expect_same_model(back, deck); }), "no error");
  }
  deck::ModelConfig narrow = odd_t5(true);
  narrow.explicit_head_size = 0;
  EXPECT_EQ(json::parse(config_text(narrow, DType::fp32, {}))["d_kv"], 24);
  EXPECT_EQ(file_of(narrow).model, narrow);
}

TEST(ConfigT5, OtherModelsThanTheDecksAreRejected) {
  const ModelFile file = file_of(odd_t5(true));
  auto other = t5_deck(file);
  other.config.model.encoder.layers = 4;
  other.config.model.layers = 1;
  other.config.model.relative_distance = 64;
  other.config.model.scaled_logits = false;
  other.config.model.activation = Activation::clamped_swiglu;
  expect_mentions(message_of([&] { expect_same_model(file, other); }),
                  {"num_layers = 2, but the deck has [encoder] layers",
                   "num_decoder_layers = 3, but the deck has [model] layers",
                   "relative_attention_max_distance = 128, but the deck has [model]",
                   "scale_decoder_outputs = true, but the deck has [model] scaled_logits",
                   "feed_forward_proj = \"relu\", but the deck has [model] activation"});
  expect_mentions(message_of([&] { expect_exportable(other); }),
                  {"activation = \"clamped_swiglu\", expected \"relu\", \"geglu\""});
  auto biased = t5_deck(file);
  biased.config.model.biases = Biases::all;
  biased.config.model.key_value_heads = 3;
  expect_mentions(message_of([&] { expect_exportable(biased); }),
                  {"[model] biases", "[model] key_value_heads"});
  auto longer = t5_deck(file);
  longer.config.model.encoder.sequence = 114;
  EXPECT_EQ(message_of([&] { expect_same_model(file, longer); }), "no error");
}

TEST(ConfigT5, WrongValuesAreRejected) {
  expect_mentions(refusal(R"({"model_type": "t5"})"),
                  {"num_layers is missing", "d_model is missing", "vocab_size is missing"});
  expect_mentions(
      refusal(t5_with(R"("num_decoder_layers": 0, "d_kv": 0, "n_positions": 2,
                         "layer_norm_epsilon": 0, "relative_attention_num_buckets": 2000,
                         "tie_word_embeddings": 1, "is_encoder_decoder": false,
                         "is_decoder": true)")),
      {"num_decoder_layers = 0, expected a whole number", "d_kv = 0, expected a whole number",
       "n_positions = 2, expected a whole number from 3", "layer_norm_epsilon = 0",
       "relative_attention_num_buckets = 2000, expected a whole number from 1 to 1024",
       "tie_word_embeddings = 1, expected true or false", "is_encoder_decoder = false",
       "is_decoder = true"});
  for (const char* name : {"T5ForConditionalGeneration", "T5Model", "T5WithLMHeadModel"})
    EXPECT_EQ(refusal(t5_with(text(R"("architectures": [")", name, R"("])"))), "no error");
  expect_mentions(refusal(t5_with(R"("architectures": ["T5ForSequenceClassification"])")),
                  {"architectures"});
}

TEST(ConfigT5, ImportedFilesGetTheTokensOfTheTraining) {
  const std::string imported = t5_with(
      R"("decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1, "dtype": "float32")");
  const deck::ModelConfig model = t5_model();
  const auto of = [&](const std::vector<std::int64_t>& ends, std::int64_t start) {
    return json::parse(updated_config(imported, "c", model, DType::fp32, ends, start).content);
  };
  EXPECT_EQ(of({1}, 0)["eos_token_id"], 1);
  EXPECT_EQ(of({9}, 8)["eos_token_id"], json::array({1, 9}));
  EXPECT_EQ(of({9}, 8)["decoder_start_token_id"], 8);
  EXPECT_EQ(of({}, -1)["decoder_start_token_id"], 0);
  const auto generation = [](const std::string& content) {
    return updated_generation_config(content, "g", {9}, 8).content;
  };
  EXPECT_EQ(json::parse(generation(R"({"decoder_start_token_id": 0})"))["decoder_start_token_id"],
            8);
  EXPECT_EQ(generation(R"({"top_k": 5})"), R"({"top_k": 5})");
}

TEST(ConfigT5, ReadsConfigsOfTransformers) {
  for (const std::string version : {"v1_0", "v1_1"}) {
    const std::string path = golden_file("t5_hugging_face/" + version + "/config.json");
    const ModelFile file = parse_config(read_file(path), path);
    const bool old = version == "v1_0";
    EXPECT_EQ(file.model.encoder.layers, 2);
    EXPECT_EQ(file.model.layers, 3);
    EXPECT_EQ(file.model.head_size(), 5);
    EXPECT_EQ(file.model.relative_buckets, 8);
    EXPECT_EQ(file.model.relative_distance, 6);
    EXPECT_EQ(file.model.tied_embeddings, old);
    EXPECT_EQ(file.model.scaled_logits, old);
    EXPECT_EQ(file.model.activation, old ? Activation::relu : Activation::geglu);
    EXPECT_EQ(file.model.encoder.sequence, old ? 13 : 512);
    EXPECT_TRUE(file.unknown.empty()) << file.unknown.front();
  }
}

}  // namespace
}  // namespace trireme::hugging_face
