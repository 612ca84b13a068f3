#include <trireme/base/bf16_instructions.hpp>
#include <trireme/base/text.hpp>
#include <trireme/deck/table.hpp>
#include <trireme/deck/value.hpp>

#include <commands/engine_commands.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace trireme::commands {
namespace {

namespace fs = std::filesystem;

/// A run of a model with a trained tokenizer, which is then made again from another text.
class Identity : public EngineCommands {
 protected:
  static constexpr const char* overrides =
      " data.train=a.h5 data.validation=v.h5 data.tokenizer=t.json run.steps=4 ";

  void SetUp() override {
    EngineCommands::SetUp();
    if (IsSkipped()) return;
    tokenize("text");
    ASSERT_EQ(train("checkpoint.every=2"), 0) << err();
    std::string other;
    for (int i = 0; i < 4000; ++i) other += text("jackdaws love my big sphinx of quartz ", i, "\n");
    folder_.write("other", other);
  }

  void tokenize(const std::string& file) {
    ASSERT_EQ(run(text("trireme tokenize --train-bpe 280 --tokenizer t.json -o a.h5 "
                       "--document-separator '\\n' --validation v.h5 --validation-fraction 0.1 ",
                       file)),
              0)
        << err();
  }
  int train(const std::string& more) {
    return run(text("trireme train deck.toml ", overrides, more));
  }
  int restart(const std::string& more) {
    return train("checkpoint.restart=latest optimizer.decay_steps=4 run.steps=6 " + more);
  }
  /// Error with both names of the tokenizer and the folder that keeps the first one.
  void expect_other_tokenizer(const std::string& before, const std::string& now) const {
    for (const std::string& part :
         {before, now, std::string("data.tokenizer=run/checkpoints/step_00000004")})
      EXPECT_NE(err().find(part), std::string::npos) << part << " in:\n" << err();
    EXPECT_EQ(count(err(), "trireme: error:"), 1) << err();
  }
  std::string tokenizer_name() {
    EXPECT_EQ(run("trireme inspect a.h5 | grep -o 'bpe-[0-9a-f]*' | head -n 1"), 0);
    return out().substr(0, out().find('\n'));
  }
};

TEST_F(Identity, EveryCommandRejectsAReplacedTokenizer) {
  const std::string before = tokenizer_name();
  tokenize("other");
  const std::string now = tokenizer_name();
  ASSERT_NE(before, now);
  EXPECT_EQ(restart(""), 2);
  expect_other_tokenizer(before, now);
  EXPECT_EQ(run(text("trireme eval deck.toml", overrides)), 2);
  expect_other_tokenizer(before, now);
  EXPECT_EQ(run(text("trireme generate deck.toml --tokens 4", overrides)), 2);
  expect_other_tokenizer(before, now);
  folder_.write("q.jsonl", "{\"context\": \"the quick\", \"continuation\": \" brown\"}\n");
  EXPECT_EQ(run(text("trireme eval deck.toml --tasks q.jsonl", overrides)), 2);
  expect_other_tokenizer(before, now);
  // Whoever does it on purpose is told what is different.
  EXPECT_EQ(restart("data.replaced=true"), 0) << err();
  const auto warnings = recorded_warnings(folder_, "run");
  ASSERT_EQ(warnings.size(), 3u) << err();
  EXPECT_NE(warnings[0].find(now), std::string::npos) << warnings[0];
  EXPECT_NE(warnings[1].find("a.h5"), std::string::npos) << warnings[1];
  EXPECT_NE(warnings[2].find("v.h5"), std::string::npos) << warnings[2];
}

/// A warning, and only if this processor has the instructions that TRIREME_BF16 hides.
TEST_F(Identity, RestartWithOtherKernelsSaysThatBitsDiffer) {
  const std::string bf16 = "precision.compute=bf16 run.directory=r ";
  ASSERT_EQ(train(bf16 + "checkpoint.every=2"), 0) << err();
  const std::string command = text("trireme train deck.toml ", overrides, bf16,
                                   "checkpoint.restart=latest optimizer.decay_steps=4 run.steps=");
  ASSERT_EQ(run(text(command, 6)), 0) << err();
  EXPECT_EQ(recorded_warnings(folder_, "r"), std::vector<std::string>{});
  ASSERT_EQ(run(text("TRIREME_BF16=plain ", command, 8)), 0) << err();
  const auto warnings = recorded_warnings(folder_, "r");
  if (bf16_instructions() == Bf16Instructions::plain) {
    EXPECT_EQ(warnings, std::vector<std::string>{});
    return;
  }
  ASSERT_EQ(warnings.size(), 1u) << err();
  for (const std::string& part :
       {std::string("r/checkpoints/step_00000006"), std::string(name_of(bf16_instructions())),
        std::string(" in fp32")})
    EXPECT_NE(warnings[0].find(part), std::string::npos) << part << " in " << warnings[0];
}

TEST_F(Identity, CheckpointSuppliesALostTokenizer) {
  const std::string kept = file("t.json");
  ASSERT_EQ(run(text("trireme eval deck.toml", overrides)), 0) << err();
  const std::string loss = line_of("loss ");
  ASSERT_FALSE(loss.empty());
  fs::remove(folder_.file("t.json"));
  EXPECT_EQ(run(text("trireme eval deck.toml", overrides)), 2);
  EXPECT_NE(err().find("t.json"), std::string::npos) << err();
  const std::string there = "data.tokenizer=run/checkpoints/step_00000004";
  EXPECT_EQ(file("run/checkpoints/step_00000004/tokenizer.json"), kept);
  EXPECT_EQ(run(text("trireme eval deck.toml", overrides, there)), 0) << err();
  EXPECT_EQ(line_of("loss "), loss);
  // A run that continues with it keeps it, too.
  EXPECT_EQ(restart(there), 0) << err();
  EXPECT_EQ(file("run/checkpoints/step_00000006/tokenizer.json"), kept);
  EXPECT_EQ(run("trireme export run/checkpoints exported"), 0) << err();
  EXPECT_EQ(file("exported/tokenizer.json"), kept);
  // Damage of it is damage of the checkpoint.
  folder_.write("run/checkpoints/step_00000006/tokenizer.json", kept + " ");
  EXPECT_EQ(restart(there), 0) << err();
  EXPECT_EQ(last_job().restart->checkpoint, "run/checkpoints/step_00000004");
}

TEST_F(Identity, EveryCommandRejectsAnotherEndOfDocument) {
  std::string chats;
  for (int i = 0; i < 60; ++i)
    chats += text(R"({"messages": [{"role": "user", "content": "what is )", i,
                  R"( plus one?"}, {"role": "assistant", "content": "it is )", i + 1, "\"}]}\n");
  folder_.write("c.jsonl", chats);
  ASSERT_EQ(run("trireme tokenize --train-bpe 290 --chat chatml --tokenizer c.json -o c.h5 "
                "--validation w.h5 --validation-fraction 0.1 c.jsonl"),
            0)
      << err();
  const std::string deck =
      " deck.toml data.train=c.h5 data.validation=w.h5 data.tokenizer=c.json run.directory=chats "
      "run.steps=2 ";
  ASSERT_EQ(run("trireme train" + deck), 0) << err();
  ASSERT_EQ(run("trireme eval" + deck), 0) << err();
  ASSERT_EQ(run("trireme eval" + deck + "'data.end_of_document=<|endoftext|>'"), 0) << err();
  for (const char* command : {"trireme eval", "trireme generate --tokens 2", "trireme train"}) {
    EXPECT_EQ(run(command + deck + "checkpoint.restart=latest 'data.end_of_document=<|im_end|>'"),
              2)
        << command;
    for (const char* part : {"end_of_document = \"<|im_end|>\"", "documents that end with token",
                             "chats/checkpoints/step_00000002/deck.toml"})
      EXPECT_NE(err().find(part), std::string::npos) << command << "\n" << err();
    EXPECT_EQ(count(err(), "trireme: error:"), 1) << err();
  }
}

TEST_F(Identity, RejectsReplacedTrainingDataUnlessDeclared) {
  const auto tokens = [&](const std::string& text_file, const std::string& h5) {
    return run(text("trireme tokenize --tokenizer t.json --document-separator '\\n' -o ", h5, " ",
                    text_file));
  };
  ASSERT_EQ(run("cp a.h5 copy.h5"), 0);
  ASSERT_EQ(tokens("other", "b.h5"), 0) << err();
  // A copy has the same samples, whatever its path; another path is listed.
  EXPECT_EQ(restart("data.train=copy.h5"), 0) << err();
  EXPECT_NE(out().find("\"a.h5\" -> \"copy.h5\"  (the same samples)"), std::string::npos) << out();
  EXPECT_EQ(restart("data.train=b.h5 run.steps=7"), 0) << err();
  EXPECT_NE(out().find("-> \"b.h5\"  (other samples from here on)"), std::string::npos) << out();
  // The same path with other tokens, of the same text at another order of documents
  ASSERT_EQ(run("tac other > reversed"), 0);
  ASSERT_EQ(tokens("reversed", "b.h5"), 0) << err();
  EXPECT_EQ(restart("data.train=b.h5 run.steps=8"), 2);
  for (const char* part : {"b.h5", "data.replaced=true"})
    EXPECT_NE(err().find(part), std::string::npos) << err();
  EXPECT_EQ(restart("data.train=b.h5 run.steps=8 data.replaced=true"), 0) << err();
  EXPECT_EQ(restart("data.train=b.h5 run.steps=9"), 0) << err();
  // One file of a blend
  const std::string blend = R"('data.train=1 a.h5, 2 b.h5' )";
  EXPECT_EQ(restart(blend + "run.steps=10"), 0) << err();
  ASSERT_EQ(tokens("other", "b.h5"), 0) << err();
  EXPECT_EQ(restart(blend + "run.steps=11"), 2);
  EXPECT_NE(err().find("b.h5"), std::string::npos) << err();
}

/// A value of each key that is valid and changes the model of the decks below; the others are
/// chosen by the key's type.
const std::map<std::string, std::string>& other_values() {
  static const std::map<std::string, std::string> values{
      {"model.family", "qwen2"},
      {"model.layers", "3"},
      {"model.hidden", "48"},
      {"model.heads", "2"},
      {"model.key_value_heads", "2"},
      {"model.head_size", "16"},
      {"model.feed_forward", "48"},
      {"model.sequence", "24"},
      {"model.vocabulary", "300"},
      {"model.shared_layers", "1"},
      {"model.predicts", "2"},
      {"model.predict_weight", "0.5"},
      {"model.dropout", "0.25"},
      {"model.norm_epsilon", "0.01"},
      {"model.rope_theta", "5e4"},
      {"model.relative_buckets", "16"},
      {"model.relative_distance", "64"},
      {"model.activation", "geglu"},
      {"model.activation_limit", "5"},
      {"model.key_value_rank", "16"},
      {"model.query_rank", "8"},
      {"model.rotary_size", "2"},
      {"model.value_size", "2"},
      {"model.window", "8"},
      {"model.full_attention_every", "2"},
      {"model.query_pre_attention_scalar", "4"},
      {"model.attention_softcap", "1"},
      {"model.logit_softcap", "1"},
      {"model.masked_share", "0.5"},
      {"model.window_rope_theta", "200"},
      {"model.rope_factor", "16"},
      {"model.rope_original_sequence", "8"},
      {"model.rope_low_frequency_factor", "2"},
      {"model.rope_high_frequency_factor", "8"},
      {"model.rope_beta_fast", "4"},
      {"model.rope_beta_slow", "0.5"},
      {"model.rope_attention_factor", "2"},
      {"model.rope_mscale", "1"},
      {"model.rope_mscale_all", "1"},
      {"adapter.rank", "3"},
      {"adapter.alpha", "64"},
      {"adapter.dropout", "0.25"},
      {"adapter.targets", "[\"attention.output\"]"},
      {"adapter.parts", "[\"vision\"]"},
      {"adapter.also_trained", "[\"*norm*\"]"},
      {"precision.fp8_history", "7"},
      {"precision.loss_scale", "64"},
      {"precision.loss_scale_interval", "7"},
      {"data.train", "data/validation.h5"},
      {"data.class_token", "3"},
      {"data.separator_token", "4"},
      {"data.mask_token", "5"},
      {"data.start_token", "3"},
      {"data.end_token", "4"},
      {"data.sentinel_token", "5"},
  };
  return values;
}

/// Keys whose values other tests of this file change, or that are paths of other data.
bool is_left_out(const deck::Key& key) {
  return key.full_name() == "data.tokenizer" || key.full_name() == "data.end_of_document" ||
         key.full_name() == "data.validation" || key.full_name() == "data.replaced";
}

/// A value that is not the one of the resolved deck.
std::string other_value(const deck::Key& key, const std::string& resolved) {
  if (const auto found = other_values().find(key.full_name()); found != other_values().end())
    return found->second;
  if (key.type == deck::KeyType::boolean)
    return resolved.find("\n" + key.name + " = true") == std::string::npos ? "true" : "false";
  for (const std::string_view choice : key.choices)
    if (resolved.find(text("\n", key.name, " = \"", choice, "\"")) == std::string::npos)
      return std::string(choice);
  ADD_FAILURE() << key.full_name() << ": name another value in other_values()";
  return "";
}

/// The decks' models differ in what only some models have.
class FixedKeys : public EngineCommands, public ::testing::WithParamInterface<const char*> {};

/// What a checkpoint computes is never changed without a word: another value of a key is an error
/// that names it, or a line that names it, or changes nothing in the loss. The same for a restart,
/// whose line may only be missing if the table says that the key has no effect.
TEST_P(FixedKeys, ChangesAreRejectedOrListedIfTheyMatter) {
  const std::string deck = std::string(" deck.toml run.steps=2 model.dropout=0 ") + GetParam();
  ASSERT_EQ(run("trireme train" + deck), 0) << err();
  ASSERT_EQ(run("trireme eval" + deck), 0) << err();
  const std::string loss = line_of("loss ");
  ASSERT_FALSE(loss.empty());
  EXPECT_EQ(err(), "");
  const std::string resolved = file("run/deck.toml");
  std::map<deck::Effect, int> rejected;
  for (const deck::Key& key : deck::keys()) {
    const bool walked = key.section == "model" || key.section == "adapter" ||
                        key.section == "data" || key.section == "precision";
    if (!walked || is_left_out(key)) continue;
    const std::string changed =
        text(deck, " '", key.full_name(), "=", other_value(key, resolved), "'");
    const auto names_it = [&] {
      const std::string said = out() + err();
      return said.find(key.name) != std::string::npos;
    };
    int code = run("trireme eval" + changed);
    EXPECT_TRUE(names_it() || (code == 0 && line_of("loss ") == loss)) << changed << "\n"
                                                                       << out() << err();
    EXPECT_TRUE(code == 0 || code == 2) << changed << "\n" << err();
    if (key.effect == deck::Effect::model || key.effect == deck::Effect::function) {
      EXPECT_EQ(code, 2) << changed << "\n" << out();
    }
    if (err().find("contradicts the checkpoint") != std::string::npos) ++rejected[key.effect];
    code = run("trireme train" + changed + " checkpoint.restart=latest");
    EXPECT_TRUE(names_it() || key.effect == deck::Effect::none) << changed << "\n"
                                                                << out() << err();
    EXPECT_TRUE(code == 0 || code == 2) << changed << "\n" << err();
    if (key.effect == deck::Effect::model) {
      EXPECT_EQ(code, 2) << changed << "\n" << out();
    }
  }
  EXPECT_GT(rejected[deck::Effect::model], 10);
}

INSTANTIATE_TEST_SUITE_P(
    Models, FixedKeys,
    ::testing::Values(
        "model.family=llama model.heads=4 model.window=16 model.rope_scaling=yarn "
        "model.rope_factor=4 model.rope_original_sequence=16",
        "model.family=llama model.heads=4 model.rope_scaling=llama3 model.rope_factor=4 "
        "model.rope_original_sequence=16 adapter.kind=lora adapter.rank=2",
        "model.family=bert model.heads=4"));

/// Adapters that are added with another factor are another model.
TEST_F(EngineCommands, EvaluateAdaptersAsTrained) {
  const std::string deck = " deck.toml model.family=llama adapter.kind=lora run.steps=4 ";
  ASSERT_EQ(run("trireme train" + deck + "adapter.alpha=64"), 0) << err();
  for (const char* other :
       {"", "adapter.alpha=64 adapter.scaling=rslora", "adapter.alpha=64 adapter.kind=none",
        "adapter.alpha=64 adapter.rank=4"})
    for (const char* command : {"eval", "generate --tokens 2"}) {
      EXPECT_EQ(run(text("trireme ", command, deck, other)), 2) << other << "\n" << out();
      EXPECT_NE(err().find("contradicts the checkpoint"), std::string::npos) << other << err();
    }
  EXPECT_EQ(run("trireme eval" + deck + "adapter.alpha=64"), 0) << err();
}

/// Other rotary positions are computed only if the user asks for them.
TEST_F(EngineCommands, ComputeAnotherFunctionOfTheWeightsOnlyOnRequest) {
  const std::string deck = " deck.toml model.family=llama run.steps=4 ";
  ASSERT_EQ(run("trireme train" + deck), 0) << err();
  const std::string scaled = deck + "model.rope_scaling=linear model.rope_factor=4";
  for (const char* command : {"eval", "generate --tokens 2"}) {
    EXPECT_EQ(run(text("trireme ", command, scaled)), 2) << out();
    for (const char* part : {"rope_scaling", "rope_factor", "--as-deck"})
      EXPECT_NE(err().find(part), std::string::npos) << part << "\n" << err();
    EXPECT_EQ(run(text("trireme ", command, " --as-deck", scaled)), 0) << err();
    EXPECT_NE(err().find("rope_factor"), std::string::npos) << err();
  }
  EXPECT_EQ(run("trireme eval --as-deck" + deck + "model.norm_epsilon=0.1"), 2) << out();
}

}  // namespace
}  // namespace trireme::commands
