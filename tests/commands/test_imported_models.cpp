#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <support/shell.hpp>

#include <string>
#include <tuple>

/// What an export keeps of an imported model, which adapters an import refuses, and other lengths
/// of samples than those of the training.
namespace trireme::commands {
namespace {

using namespace trireme::testing;

class ImportedModels : public ::testing::Test {
 protected:
  ImportedModels() {
    const std::string rest =
        "[batch]\nglobal = 4\nmicro = 1\n[optimizer]\nlearning_rate = 1e-2\n[data]\ntrain = "
        "\"tokens.h5\"\n";
    folder_.write("deck.toml",
                  "[run]\ndirectory = \"run\"\nsteps = 3\n[model]\nlayers = 2\nhidden = 18\n"
                  "heads = 3\nsequence = 29\n[precision]\ncompute = \"fp64\"\n" +
                      rest);
    folder_.write(
        "golden.toml",
        "[model]\nlayers = 2\nhidden = 12\nheads = 3\nsequence = 13\nvocabulary = 61\n" + rest);
    EXPECT_EQ(run("cp -r '" TRIREME_SOURCE_DIR "/tests/golden/gpt2_hugging_face/tied' golden"), 0);
  }

  int run(const std::string& line) { return shell(folder_, line); }
  std::string out() const { return read_file(folder_.file("out")); }
  std::string err() const { return read_file(folder_.file("err")); }

  void tokenize() {
    std::string text;
    for (int i = 0; i < 400; ++i)
      text += "the quick brown fox " + std::to_string(i * i % 97) + " jumps\n";
    folder_.write("text", text);
    EXPECT_EQ(run("trireme tokenize -o tokens.h5 --document-separator '\\n' text"), 0) << err();
  }

  TemporaryFolder folder_;
};

TEST_F(ImportedModels, RotaryModelsContinueWithAnotherSequenceLength) {
#ifdef TRIREME_ON_DEVICE
  if (run("trireme-engine --help") == 127) GTEST_SKIP() << err();
#endif
  tokenize();
  const std::string llama = " model.family=llama";
  ASSERT_EQ(run("trireme train deck.toml" + llama), 0) << err();
  for (const char* sequence : {"16", "47"}) {
    const std::string other = llama + " model.sequence=" + sequence;
    const std::string from_run = " --checkpoint run/checkpoints/step_00000003";
    EXPECT_EQ(run("trireme eval deck.toml --data tokens.h5" + other + from_run), 0) << err();
    EXPECT_EQ(run("trireme generate deck.toml --tokens 3" + other + from_run), 0) << err();
    const std::string to = std::string(" run.directory=to_") + sequence;
    EXPECT_EQ(run("trireme train deck.toml run.steps=5 "
                  "checkpoint.restart=run/checkpoints/step_00000003" +
                  other + to),
              0)
        << err();
    expect_output(folder_, "model.sequence  ");
    expect_output(folder_, std::string(" 29 -> ") + sequence + "  (changes the numbers");
    expect_output(folder_, "after step 3, 12 samples");
  }
}

TEST_F(ImportedModels, RejectAnotherSequenceLengthWithTheReason) {
#ifdef TRIREME_ON_DEVICE
  if (run("trireme-engine --help") == 127) GTEST_SKIP() << err();
#endif
  tokenize();
  const std::string dynamic =
      " model.family=llama model.rope_scaling=dynamic model.rope_factor=2 "
      "model.rope_original_sequence=20";
  for (const auto& [name, keys, reason] :
       {std::tuple("gpt", std::string(), "learned positions have a row for each token"),
        {"rotary", dynamic, "rope_scaling = \"dynamic\" computes the rotary positions from it"}}) {
    const std::string deck = "deck.toml" + keys + " run.directory=" + name;
    ASSERT_EQ(run("trireme train " + deck + " run.steps=1"), 0) << err();
    for (const std::string command : {"eval --data tokens.h5", "generate --tokens 3"}) {
      EXPECT_EQ(run("trireme " + command + " " + deck + " model.sequence=24"), 2);
      expect_error(folder_, "[model] sequence = 24 (command line), but 29 in");
      expect_error(folder_, reason);
    }
    EXPECT_EQ(run("trireme train " + deck + " model.sequence=24 checkpoint.restart=latest"),
              keys.empty() ? 2 : 0)
        << "rope_scaling may change in a training: " << err();
  }
}

TEST_F(ImportedModels, RejectAnAdapterThatChangesTheBase) {
  ASSERT_EQ(run("trireme import golden golden.toml && trireme export run base"), 0) << err();
  const std::string config = R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8,
    "target_modules": ["c_attn"], )";
  const std::string import =
      "trireme import base golden.toml run.directory=tuned adapter.kind=lora adapter.rank=4 "
      "adapter.alpha=8 --adapter adapter";
  for (const char* member : {R"("init_lora_weights": "pissa")", R"("init_lora_weights": "loftq")",
                             R"("alora_invocation_tokens": [1])", R"("next_variant": 1)"}) {
    ASSERT_EQ(run("rm -rf adapter && mkdir adapter"), 0);
    folder_.write("adapter/adapter_config.json", config + member + "}");
    EXPECT_EQ(run(import), 2);
    expect_error(folder_,
                 "adapter/adapter_config.json: describes an adapter that Trireme does not");
    EXPECT_NE(run("ls tuned"), 0);
  }
}

TEST_F(ImportedModels, ExportKeepsImportedFilesAndAddsEndTokens) {
#ifdef TRIREME_ON_DEVICE
  if (run("trireme-engine --help") == 127) GTEST_SKIP() << err();
#endif
  using nlohmann::json;
  std::string chats;
  for (int i = 0; i < 60; ++i)
    chats += R"({"messages": [{"role": "user", "content": "What?"},)"
             R"({"role": "assistant", "content": "The quick brown fox."}]})"
             "\n";
  folder_.write("chats.jsonl", chats);
  const std::string tokenizer = TRIREME_SOURCE_DIR "/tests/golden/instructions/bpe.json";
  ASSERT_EQ(run("trireme tokenize chats.jsonl --chat chatml -o tokens.h5 --tokenizer " + tokenizer),
            0)
      << err();
  const std::string deck = "deck.toml model.family=llama data.tokenizer=" + tokenizer;
  ASSERT_EQ(run("trireme train " + deck + " run.steps=1 && trireme export run base"), 0) << err();
  const auto file = [this](const std::string& path) {
    return json::parse(read_file(folder_.file(path)));
  };
  json config = file("base/config.json");
  const json ends = config["eos_token_id"];
  ASSERT_EQ(ends.size(), 2u) << "the end of a document, and <|im_end|>: " << ends;
  expect_output(folder_, "base/config.json: eos_token_id = " + ends.dump() + ": the end of");

  config.update({{"max_position_embeddings", 131072},
                 {"bos_token_id", 3},
                 {"pad_token_id", 5},
                 {"eos_token_id", ends[0]},
                 {"rope_note", "theirs"}});
  const json generation{{"eos_token_id", ends[0]}, {"temperature", 0.6}};
  folder_.write("base/config.json", config.dump(2) + "\n");
  folder_.write("base/generation_config.json", generation.dump(2) + "\n");
  folder_.write("base/chat_template.jinja", "{{ messages }}");
  folder_.write("base/README.md", "not kept");
  ASSERT_EQ(run("trireme import base " + deck + " run.directory=tuned"), 0) << err();
  expect_output(folder_, "neither Trireme nor transformers' LlamaForCausalLM uses: rope_note");
  ASSERT_EQ(run("trireme export tuned same && rm base/README.md && diff -r base same"), 0)
      << out() << err();

  const std::string train = "trireme train " + deck + " checkpoint.restart=latest ";
  ASSERT_EQ(run(train + "run.directory=tuned run.steps=1 && " + train +
                "run.directory=tuned run.steps=2 && trireme export tuned exported"),
            0)
      << err();
  const std::string change =
      "eos_token_id = " + ends.dump() + " instead of " + ends[0].dump() + "\n";
  expect_output(folder_, "exported/config.json: " + change);
  expect_output(folder_, "exported/generation_config.json: " + change);
  EXPECT_EQ(out().find("max_position"), std::string::npos) << out();
  config["eos_token_id"] = ends;
  EXPECT_EQ(file("exported/config.json"), config);
  EXPECT_EQ(file("exported/generation_config.json"),
            json({{"eos_token_id", ends}, {"temperature", 0.6}}));
  EXPECT_EQ(read_file(folder_.file("exported/chat_template.jinja")), "{{ messages }}");

  ASSERT_EQ(run("trireme export tuned exported2 --dtype bf16"), 0) << err();
  expect_output(folder_,
                "exported2/config.json: torch_dtype = \"bfloat16\" instead of \"float64\"");
  EXPECT_EQ(run("trireme export tuned exported2"), 2);
  expect_error(folder_, "--force");
  ASSERT_EQ(run("trireme import base deck.toml model.family=llama model.vocabulary=" +
                config["vocab_size"].dump() +
                " data.train=none.h5 run.directory=bytes && trireme export bytes plain"),
            0)
      << err();
  EXPECT_EQ(run("ls plain"), 0);
  EXPECT_EQ(out(), "config.json\ngeneration_config.json\nmodel.safetensors\n")
      << "files of another tokenizer are not kept";
}

}  // namespace
}  // namespace trireme::commands
