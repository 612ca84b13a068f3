#include <gtest/gtest.h>

#include <commands/recorded.hpp>
#include <support/shell.hpp>

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

/// `trireme export` and `trireme import`.
namespace trireme::commands {
namespace {

using namespace trireme::testing;

class HuggingFaceCommands : public ::testing::Test {
 protected:
  HuggingFaceCommands() {
    const std::string rest =
        "[batch]\nglobal = 4\nmicro = 1\n[optimizer]\nlearning_rate = 1e-2\n[data]\ntrain = "
        "\"tokens.h5\"\n";
    folder_.write("deck.toml", R"([run]
directory = "run"
steps = 3
log_every = 1
[model]
layers = 2
hidden = 18
heads = 3
sequence = 29
dropout = 0.1
[precision]
compute = "fp64"
)" + rest);
    folder_.write("rest.toml", rest);
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

  /// The output of `trireme eval` after the checkpoint's name.
  std::string evaluated(const std::string& arguments) {
    EXPECT_EQ(run("trireme eval deck.toml --data tokens.h5 " + arguments), 0) << err();
    const std::string said = out();
    return said.substr(std::min(said.find("\nloss "), said.size()));
  }

  std::vector<double> losses(const std::string& directory) const {
    const std::string lines = read_file(folder_.file(directory + "/metrics.jsonl"));
    std::vector<double> found;
    const std::string key = "\"loss\":";
    for (auto at = lines.find(key); at != std::string::npos; at = lines.find(key, at + 1))
      found.push_back(std::atof(lines.c_str() + at + key.size()));
    return found;
  }

  TemporaryFolder folder_;
};

class HuggingFaceFamilies : public HuggingFaceCommands,
                            public ::testing::WithParamInterface<const char*> {};

INSTANTIATE_TEST_SUITE_P(Families, HuggingFaceFamilies,
                         ::testing::Values("family = \"gpt\"\nnorm_epsilon = 1e-6",
                                           "family = \"llama\"\ntied_embeddings = false",
                                           "family = \"qwen2\"\nwindow = 7",
                                           "family = \"qwen3\"\nhead_size = 8",
                                           "family = \"mistral\"\nwindow = 5",
                                           "family = \"bert\"\nvocabulary = 260"),
                         [](const auto& family) {
                           const std::string keys = family.param;
                           return keys.substr(10, keys.find('"', 10) - 10);
                         });

TEST_P(HuggingFaceFamilies, RoundTripAndTrainInAnyLayout) {
#ifdef TRIREME_ON_DEVICE
  if (run("trireme-engine --help") == 127)
    GTEST_SKIP() << "trireme-engine does not start here: " << err();
#endif
  std::string deck = read_file(folder_.file("deck.toml"));
  folder_.write("deck.toml", deck.insert(deck.find("layers"), GetParam() + std::string("\n")));
  tokenize();
  ASSERT_EQ(run("trireme train deck.toml"), 0) << err();
  const std::string expected = evaluated("");
  EXPECT_NE(expected.find("perplexity"), std::string::npos);
  ASSERT_EQ(run("trireme export run/checkpoints exported"), 0) << err();
  expect_output(folder_, "run/checkpoints/step_00000003");
  expect_output(folder_, "fp64, bit for bit");
  ASSERT_EQ(run("trireme import exported deck.toml run.directory=a && cp -r a b"), 0) << err();
  EXPECT_EQ(evaluated("run.directory=a"), expected);

  const std::string restart = " checkpoint.restart=latest";
  for (const std::string command : {"train", "check"}) {
    EXPECT_EQ(run("trireme " + command + " deck.toml run.directory=a"), 2);
    expect_error(folder_, "a/checkpoints/step_00000000 holds imported weights");
  }
  ASSERT_EQ(run("trireme train deck.toml run.directory=a" + restart), 0) << err();
  const auto started = recorded_last<events::Restart>(folder_, "a");
  ASSERT_TRUE(started);
  EXPECT_FALSE(started->optimizer_state);
  ASSERT_EQ(run(std::string(TRIREME_MPIEXEC) +
                " -n 4 trireme train deck.toml run.directory=b parallel.tensor=2 "
                "parallel.pipeline=2" +
                restart),
            0)
      << err();
  EXPECT_FALSE(recorded_last<events::Restart>(folder_, "b")->optimizer_state);
  const auto one = losses("a");
  const auto four = losses("b");
  ASSERT_EQ(one.size(), 3u);
  ASSERT_EQ(four.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(four[i], one[i], 1e-10 * one[i]);
  EXPECT_LT(one[0], losses("run")[0]) << "it begins with what was learnt";

  ASSERT_EQ(run("trireme export b/checkpoints of_four && "
                "trireme import of_four deck.toml run.directory=c && "
                "trireme export c/checkpoints again"),
            0)
      << err();
  EXPECT_EQ(run("diff -r of_four again"), 0) << out();
  EXPECT_EQ(evaluated("run.directory=c"), evaluated("run.directory=b"));
}

TEST_F(HuggingFaceCommands, KeepExistingFilesWithoutForce) {
  ASSERT_EQ(run("trireme import golden golden.toml && trireme export run/checkpoints x"), 0)
      << err();
  ASSERT_EQ(run("cp -r x before && trireme export run/checkpoints x"), 2);
  expect_error(folder_, "x/model.safetensors");
  expect_error(folder_, "--force");
  EXPECT_EQ(run("diff -r x before"), 0);
  ASSERT_EQ(run("trireme export run/checkpoints/step_00000000 x --force --dtype bf16"), 0) << err();
  expect_output(folder_, "bf16, rounded from fp32");
  EXPECT_EQ(run("grep -q bfloat16 x/config.json && ls x"), 0);
  EXPECT_EQ(out(), "config.json\nmodel.safetensors\n");
  EXPECT_EQ(run("trireme export run/checkpoints y --dtype int8"), 2);
  expect_error(folder_, "bf16");
  EXPECT_EQ(run("trireme export nowhere y"), 2);
  expect_error(folder_, "nowhere");
  EXPECT_NE(run("ls y"), 0);
  EXPECT_EQ(run("trireme export run y --dtype bf16"), 0) << "a run's folder means its checkpoints";
  EXPECT_EQ(run("diff -r x y"), 0);
}

TEST_F(HuggingFaceCommands, DetectDamageAndLeaveNoFiles) {
  ASSERT_EQ(run("trireme import golden golden.toml"), 0) << err();
  const std::string shard = "run/checkpoints/step_00000000/shard_000000.h5";
  std::string bytes = read_file(folder_.file(shard));
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  ASSERT_EQ(run("rm " + shard), 0);
  folder_.write(shard, bytes);
  EXPECT_EQ(run("trireme export run/checkpoints/step_00000000 x"), 1);
  expect_error(folder_, "shard_000000.h5");
  EXPECT_NE(run("ls x"), 0);

  bytes = read_file(folder_.file("golden/model.safetensors"));
  folder_.write("golden/model.safetensors", bytes.substr(0, bytes.size() - 8));
  EXPECT_EQ(run("trireme import golden golden.toml run.directory=other"), 2);
  expect_error(folder_, "golden/model.safetensors");
  EXPECT_NE(run("ls other"), 0);
}

TEST_F(HuggingFaceCommands, RejectAnotherModelWithBothValues) {
  EXPECT_EQ(run("trireme import golden golden.toml model.layers=3 model.sequence=31"), 2);
  expect_error(folder_, "n_layer = 2, but the deck has [model] layers = 3 (command line)");
  expect_error(folder_, "n_positions = 13, but the deck has [model] sequence = 31");
  EXPECT_NE(run("ls run"), 0);
  EXPECT_EQ(run("trireme import golden golden.toml model.window=5"), 2);
  expect_error(folder_, "[model] window = 5 (command line), expected 0");
  ASSERT_EQ(run("trireme import golden golden.toml"), 0) << err();
  expect_output(folder_, "`trireme train golden.toml checkpoint.restart=latest`");
  EXPECT_EQ(run("trireme import golden golden.toml"), 2);
  expect_error(folder_, "holds 1 checkpoint already, step_00000000");
  expect_error(folder_, "checkpoint.directory=");
  EXPECT_EQ(run("trireme import nowhere"), 2);
  expect_error(folder_, "nowhere/config.json");
  EXPECT_EQ(run("mkdir empty && cp golden/config.json empty && trireme import empty"), 2);
  expect_error(folder_, "empty/model.safetensors: no such file");
  EXPECT_EQ(run("sed -i 's/gelu_new/relu/' golden/config.json; trireme import golden"), 2);
  expect_error(folder_, "activation_function = \"relu\", expected \"gelu_new\"");
}

TEST_F(HuggingFaceCommands, RejectExportOfAModelOutsideAllFamilies) {
#ifdef TRIREME_ON_DEVICE
  if (run("trireme-engine --help") == 127)
    GTEST_SKIP() << "trireme-engine does not start here: " << err();
#endif
  tokenize();
  ASSERT_EQ(run("trireme train deck.toml run.steps=1 model.window=30"), 0) << err();
  EXPECT_EQ(run("trireme export run/checkpoints x"), 2);
  expect_error(
      folder_,
      "step_00000001/deck.toml: transformers' GPT2LMHeadModel does not have the properties");
  expect_error(folder_, "[model] window = 30 (run/checkpoints/step_00000001/deck.toml:");
  EXPECT_NE(run("ls x"), 0);
}

TEST_F(HuggingFaceCommands, ShardsRoundTripAndForceReplacesOtherFiles) {
  ASSERT_EQ(run("trireme import golden golden.toml"), 0) << err();
  ASSERT_EQ(run("trireme export run/checkpoints x --shard-size 4KB"), 0) << err();
  expect_output(folder_, "x/model-00001-of-0000");
  expect_output(folder_, "their index x/model.safetensors.index.json");
  ASSERT_EQ(run("trireme import x golden.toml run.directory=other"), 0) << err();
  expect_output(folder_, "the weights of x/model.safetensors.index.json");
  EXPECT_EQ(run("trireme export other/checkpoints again --shard-size 4KB && "
                "cp x/config.json again && diff -r x again"),
            0)
      << out();
  EXPECT_EQ(run("trireme export run/checkpoints x"), 2);
  expect_error(folder_, "--force");
  ASSERT_EQ(run("trireme export run/checkpoints x --force && ls x"), 0) << err();
  expect_output(folder_, "config.json\nmodel.safetensors\n");
  ASSERT_EQ(run("trireme import x golden.toml run.directory=third"), 0) << err();

  ASSERT_EQ(run("trireme export run/checkpoints x --force --shard-size 4KB && "
                "rm x/model-00002-of-*"),
            0)
      << err();
  EXPECT_EQ(run("trireme import x golden.toml run.directory=fourth"), 2);
  expect_error(folder_, "model-00002-of-");
  expect_error(folder_, "is missing");
  EXPECT_EQ(run("trireme export run/checkpoints y --shard-size 4G"), 2);
  expect_error(folder_, "--shard-size 4G");
}

TEST_F(HuggingFaceCommands, ImportWithoutADeckPrintsTheModelSection) {
  ASSERT_EQ(run("trireme import golden > model.toml"), 0) << err();
  EXPECT_EQ(run("cat model.toml rest.toml > new.toml && trireme import golden new.toml"), 0)
      << err();
}

/// Copies of the feed-forward parts, whose weights sum to 1, whatever the routers choose.
TEST_F(HuggingFaceCommands, ExpertsBeginAsTheFeedForwardPartsOfTheOriginal) {
  tokenize();
  if (run("trireme-engine --help") == 127) GTEST_SKIP() << err();
  const auto line = [](const std::string& text) {
    const auto at = text.find("\nloss ");
    return text.substr(at, text.find('\n', at + 1) - at);
  };
  for (const std::string family : {"llama", "mistral", "qwen3"}) {
    SCOPED_TRACE(family);
    const std::string first =
        "deck.toml model.family=" + family + " model.window=0 model.dropout=0 model.head_size=8 ";
    ASSERT_EQ(run("rm -rf run run2 run3 exported again"), 0);
    ASSERT_EQ(run("trireme train " + first), 0) << err();
    ASSERT_EQ(run("trireme export run exported"), 0) << err();
    const std::string original = evaluated(first.substr(9) + " run.directory=run");
    ASSERT_EQ(run("trireme import exported --experts 4"), 0) << err();
    const std::string section = out();
    EXPECT_NE(section.find(family == "qwen3" ? "\"qwen3_moe\"" : "\"mixtral\""), std::string::npos)
        << section;
    EXPECT_NE(section.find("\nnumber = 4\n"), std::string::npos) << section;
    folder_.write("experts.toml", section + "\n[precision]\ncompute = \"fp64\"\n" +
                                      read_file(folder_.file("rest.toml")));
    const std::string with = " experts.toml run.directory=run2 run.steps=4 run.log_every=1 ";
    ASSERT_EQ(run("trireme import exported" + with + "--experts 4"), 0) << err();
    for (const char* active : {"1", "2", "4"}) {
      ASSERT_EQ(run("trireme eval --as-deck --data tokens.h5" + with + "experts.active=" + active),
                0)
          << err();
      EXPECT_EQ(line(out()), line(original)) << active;
    }
    ASSERT_EQ(run("trireme train" + with + "checkpoint.restart=latest"), 0) << err();
    EXPECT_EQ(losses("run2").size(), 4u);
    ASSERT_EQ(run("trireme export run2 again"), 0) << err();
    EXPECT_EQ(run("trireme import again" + with + "run.directory=run3"), 0) << err();
    // Only files of qwen3_moe can have layers without experts.
    const std::string some = with + "run.directory=run4 experts.first_layer=1 ";
    ASSERT_EQ(run("trireme import exported" + some + "--experts 4"), family == "qwen3" ? 0 : 2)
        << err();
    if (family != "qwen3") continue;
    ASSERT_EQ(run("trireme eval --as-deck --data tokens.h5" + some), 0) << err();
    EXPECT_EQ(line(out()), line(original));
  }
}

TEST_F(HuggingFaceCommands, RejectExpertsThatWouldComputeSomethingElse) {
  folder_.write("experts.toml",
                "[model]\nfamily = \"mixtral\"\nlayers = 2\nhidden = 12\nheads = 3\n"
                "sequence = 13\nvocabulary = 61\n" +
                    read_file(folder_.file("rest.toml")));
  EXPECT_EQ(run("trireme import golden --experts 4"), 2);
  EXPECT_NE(
      err().find("a gpt has no family with experts; --experts is for llama, mistral and qwen3"),
      std::string::npos)
      << err();
  ASSERT_EQ(run("cp -r '" TRIREME_SOURCE_DIR "/tests/golden/llama_hugging_face/untied' dense"), 0);
  const std::string import = "trireme import dense experts.toml --experts 8 ";
  EXPECT_EQ(run(import + "experts.normalised=false"), 2);
  EXPECT_NE(
      err().find("normalised = false (command line): with --experts, a model computes at first "
                 "what its original computes; choose normalised = true"),
      std::string::npos)
      << err();
  EXPECT_EQ(run(import + "experts.feed_forward=20"), 2);
  EXPECT_NE(err().find("each expert is a copy of [model] feed_forward"), std::string::npos)
      << err();
}

TEST_F(HuggingFaceCommands, ReportADropoutThatDiffersFromTheDeck) {
  ASSERT_EQ(run("trireme import golden golden.toml model.dropout=0.2"), 0) << err();
  expect_output(folder_, "resid_pdrop = 0");
  expect_output(folder_, "[model] dropout = 0.2 (command line)");
}

/// Sets the last number of a file to NaN, whatever its type.
constexpr const char* poison =
    "printf '\\377\\377' | dd of=$f bs=1 conv=notrunc seek=$(($(wc -c < $f) - 2)) 2>dd";

TEST_F(HuggingFaceCommands, ImportReportsNonFiniteWeights) {
  const std::string import = "trireme import golden golden.toml run.directory=nan ";
  ASSERT_EQ(run(std::string("f=golden/model.safetensors; ") + poison), 0);
  EXPECT_EQ(run(import), 2);
  expect_error(folder_, "golden/model.safetensors: tensor '");
  expect_error(folder_, " is nan; repair the file, or give --allow-nonfinite");
  EXPECT_NE(run("ls nan/checkpoints/step_*"), 0) << "nothing is left behind";
  EXPECT_EQ(run(import + "--allow-nonfinite"), 0) << err();
  expect_error(folder_, "warning");
  expect_error(folder_, "holds numbers that are not finite, the first of them nan at ");
}

TEST_F(HuggingFaceCommands, NonFiniteLossIsAFailure) {
#ifdef TRIREME_ON_DEVICE
  if (run("trireme-engine --help") == 127) GTEST_SKIP() << err();
#endif
  tokenize();
  ASSERT_EQ(run("trireme train deck.toml run.steps=1 && trireme export run exported"), 0) << err();
  ASSERT_EQ(run(std::string("f=exported/model.safetensors; ") + poison +
                " && trireme import exported deck.toml run.directory=nan --allow-nonfinite"),
            0)
      << err();
  const std::string mpiexec = std::string(TRIREME_MPIEXEC) + " -n 2 ";
  for (const std::string& launcher : {std::string(), mpiexec}) {
    EXPECT_EQ(run(launcher + "trireme eval deck.toml --data tokens.h5 run.directory=nan"), 1);
    expect_error(folder_,
                 "the loss of checkpoint nan/checkpoints/step_00000000 on tokens.h5 is not");
    for (const std::string keys : {"", " parallel.pipeline=2 --batch 2"}) {
      EXPECT_EQ(run(launcher +
                    "trireme generate deck.toml --tokens 5 --samples 3 "
                    "run.directory=nan" +
                    keys),
                1);
      expect_error(folder_, "not finite: the checkpoint's weights are damaged or have diverged");
      const std::string said = err();
      EXPECT_EQ(said.find("error: "), said.rfind("error: ")) << said;
    }
  }
}

TEST_F(HuggingFaceCommands, AcceptARunInPlaceOfItsCheckpoints) {
#ifdef TRIREME_ON_DEVICE
  if (run("trireme-engine --help") == 127) GTEST_SKIP() << err();
#endif
  tokenize();
  ASSERT_EQ(run("trireme train deck.toml run.steps=1"), 0) << err();
  ASSERT_EQ(run("trireme inspect run"), 0) << err();
  expect_output(folder_, "folder      run/checkpoints/step_00000001,");
  ASSERT_EQ(run("trireme inspect --diff run run/checkpoints"), 0) << err();
  ASSERT_EQ(run("trireme export run exported"), 0) << err();
  EXPECT_EQ(run("trireme import run deck.toml"), 2);
  expect_error(folder_, "run is a run's folder: `trireme export run NEW_FOLDER`");
  EXPECT_EQ(run("mkdir -p empty/checkpoints && trireme inspect empty"), 2);
  expect_error(folder_, "empty/checkpoints has no complete checkpoint");
  EXPECT_EQ(run("trireme train deck.toml checkpoint.restart=lastest"), 2);
  expect_error(folder_, "; did you mean latest?");
}

}  // namespace
}  // namespace trireme::commands
