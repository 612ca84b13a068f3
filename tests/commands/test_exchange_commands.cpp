#include <gtest/gtest.h>

#include <support/shell.hpp>

#include <string>

/// `trireme export` and `trireme import`.
namespace trireme::commands {
namespace {

using namespace trireme::testing;

class ExchangeCommands : public ::testing::Test {
 protected:
#ifdef TRIREME_ON_DEVICE
  void SetUp() override {
    if (run("trireme-engine --help") == 127)
      GTEST_SKIP() << "trireme-engine does not start here: " << err();
  }
#endif

  ExchangeCommands() {
    std::string text;
    for (int i = 0; i < 400; ++i)
      text += "the quick brown fox " + std::to_string(i * i % 97) + " jumps\n";
    folder_.write("text", text);
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
[batch]
global = 4
micro = 1
[optimizer]
learning_rate = 1e-2
[data]
train = "tokens.h5"
)");
    EXPECT_EQ(shell(folder_, "trireme tokenize -o tokens.h5 --document-separator '\\n' text"), 0);
  }

  int run(const std::string& line) {
    return shell(folder_, line);
  }
  std::string out() const {
    return read_file(folder_.file("out"));
  }
  std::string err() const {
    return read_file(folder_.file("err"));
  }

  /// What `trireme eval` says behind the checkpoint's name.
  std::string evaluated(const std::string& arguments) {
    EXPECT_EQ(run("trireme eval deck.toml --data tokens.h5 " + arguments), 0) << err();
    const std::string said = out();
    return said.substr(std::min(said.find("\nloss "), said.size()));
  }

  TemporaryFolder folder_;
};

TEST_F(ExchangeCommands, WeightsGoOutAndInAgainAndTrainOn) {
  for (const std::string tied : {"true", "false"}) {
    const std::string model = "model.tied_embeddings=" + tied + " ";
    ASSERT_EQ(run("rm -rf run out other; trireme train deck.toml " + model), 0) << err();
    const std::string expected = evaluated(model);
    EXPECT_NE(expected.find("perplexity"), std::string::npos);
    ASSERT_EQ(run("trireme export run/checkpoints out"), 0) << err();
    expect_output(folder_, "run/checkpoints/step_00000003");
    expect_output(folder_, "fp32, bit for bit");
    ASSERT_EQ(run("trireme import out deck.toml run.directory=other " + model), 0) << err();
    expect_output(folder_, "other/checkpoints/step_00000000");
    EXPECT_EQ(evaluated(model + "run.directory=other"), expected);

    ASSERT_EQ(run("trireme train deck.toml run.directory=other checkpoint.restart=latest " + model),
              0)
        << err();
    expect_output(folder_, "step_00000000 holds no optimizer state; it starts at zero");
    EXPECT_EQ(run("grep -c '\"step\"' other/metrics.jsonl"), 0);
    EXPECT_EQ(out(), "3\n") << "steps 1 to 3";
    EXPECT_NE(evaluated(model + "run.directory=other"), expected) << "it has learnt";
  }
}

TEST_F(ExchangeCommands, AllRanksTakeWeightsWithoutOptimizerState) {
  ASSERT_EQ(run("trireme train deck.toml && trireme export run/checkpoints out && "
                "trireme import out deck.toml run.directory=a && cp -r a b"),
            0)
      << err();
  const std::string restart = " checkpoint.restart=latest precision.compute=fp32";
  ASSERT_EQ(run("trireme train deck.toml run.directory=a" + restart), 0) << err();
  ASSERT_EQ(run(std::string(TRIREME_MPIEXEC) +
                " -n 4 trireme train deck.toml run.directory=b parallel.tensor=2 "
                "parallel.pipeline=2" +
                restart),
            0)
      << err();
  EXPECT_EQ(run("grep -c 'holds no optimizer state' b/log.txt"), 0) << "one rank speaks";
  EXPECT_EQ(out(), "1\n");
  const std::string loss = "sed 's/, \"learning_rate.*//; s/\\(\\.[0-9][0-9][0-9][0-9]\\).*/\\1/' ";
  EXPECT_EQ(run(loss + "a/metrics.jsonl > la; " + loss + "b/metrics.jsonl | diff - la"), 0)
      << out();
}

TEST_F(ExchangeCommands, FilesThatAreThereStayWithoutForce) {
  ASSERT_EQ(run("trireme train deck.toml && trireme export run/checkpoints out"), 0) << err();
  ASSERT_EQ(run("cp -r out before && trireme export run/checkpoints out"), 2);
  expect_error(folder_, "out/model.safetensors");
  expect_error(folder_, "--force");
  EXPECT_EQ(run("diff -r out before"), 0);
  ASSERT_EQ(run("trireme export run/checkpoints/step_00000003 out --force --dtype bf16"), 0)
      << err();
  expect_output(folder_, "bf16, rounded from fp32");
  EXPECT_EQ(run("grep -q bfloat16 out/config.json && ls out"), 0);
  EXPECT_EQ(out(), "config.json\nmodel.safetensors\n");
  EXPECT_EQ(run("trireme export run/checkpoints out2 --dtype int8"), 2);
  expect_error(folder_, "bf16");
  EXPECT_EQ(run("trireme export nowhere out2"), 2);
  expect_error(folder_, "nowhere");
  EXPECT_EQ(run("trireme export run out2"), 2) << "a run's folder holds no checkpoints itself";
  EXPECT_NE(run("ls out2"), 0);
}

TEST_F(ExchangeCommands, DamageIsFoundAndLeavesNothingBehind) {
  ASSERT_EQ(run("trireme train deck.toml"), 0) << err();
  ASSERT_EQ(run("cd run/checkpoints/step_00000003 && python3 -c \"f = open('shard_000000.h5', "
                "'r+b'); f.seek(20000); b = f.read(1); f.seek(20000); "
                "f.write(bytes([b[0] ^ 1]))\""),
            0);
  EXPECT_EQ(run("trireme export run/checkpoints/step_00000003 out"), 1);
  expect_error(folder_, "shard_000000.h5");
  EXPECT_NE(run("ls out"), 0);
}

TEST_F(ExchangeCommands, AnotherModelIsRefusedWithBothValues) {
  ASSERT_EQ(run("trireme train deck.toml && trireme export run/checkpoints out"), 0) << err();
  EXPECT_EQ(run("trireme import out deck.toml run.directory=other model.layers=3 "
                "model.sequence=31"),
            2);
  expect_error(folder_, "n_layer = 2, the deck has [model] layers = 3 (command line)");
  expect_error(folder_, "n_positions = 29, the deck has [model] sequence = 31");
  EXPECT_NE(run("ls other"), 0);
  EXPECT_EQ(run("trireme import out deck.toml"), 2) << "the run has checkpoints";
  expect_error(folder_, "holds 1 checkpoint already, step_00000003");
  expect_error(folder_, "checkpoint.directory=");
  EXPECT_EQ(run("trireme import text"), 2);
  expect_error(folder_, "config.json");
}

TEST_F(ExchangeCommands, WithoutADeckItsModelSectionIsPrinted) {
  ASSERT_EQ(run("trireme train deck.toml && trireme export run/checkpoints out"), 0) << err();
  ASSERT_EQ(run("trireme import out > model.toml"), 0) << err();
  EXPECT_EQ(run("(sed '/\\[model\\]/,/dropout/d' deck.toml; cat model.toml) > new.toml && "
                "trireme import out new.toml run.directory=other"),
            0)
      << err();
  EXPECT_EQ(run("sed -i 's/gelu_new/relu/' out/config.json; trireme import out"), 2);
  expect_error(folder_, "activation_function = \"relu\", expected \"gelu_new\"");
}

TEST_F(ExchangeCommands, DropoutIsTheDecksAndADifferenceIsSaid) {
  ASSERT_EQ(run("trireme train deck.toml && trireme export run/checkpoints out && "
                "trireme import out deck.toml run.directory=other model.dropout=0.2"),
            0)
      << err();
  expect_output(folder_, "resid_pdrop = 0.1");
  expect_output(folder_, "[model] dropout = 0.2");
}

}  // namespace
}  // namespace trireme::commands
