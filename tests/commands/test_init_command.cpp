#include <trireme/deck/deck.hpp>

#include <gtest/gtest.h>

#include <support/shell.hpp>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>

/// `trireme init`: what it chooses, what it writes, and which wishes it rejects.
namespace trireme::commands {
namespace {

using namespace trireme::testing;

class Init : public ::testing::Test {
 protected:
  Init() { folder_.write("my.txt", words(20'000)); }

  /// Lines of different words, 16 bytes each in the mean.
  static std::string words(int lines) {
    std::string text;
    std::uint64_t state = 1;
    for (int i = 0; i < lines; ++i) {
      for (int k = 0; k < 3; ++k) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        text += "w" + std::to_string((state >> 40) % 1000) + " ";
      }
      text += "\n";
    }
    return text;
  }

  int run(const std::string& line) { return shell(folder_, line); }
  std::string out() const { return read_file(folder_.file("out")); }
  std::string err() const { return read_file(folder_.file("err")); }
  bool exists(const std::string& path) const { return std::filesystem::exists(folder_.file(path)); }
  deck::Config config(const std::string& name) const {
    return deck::load_deck(folder_.file(name)).config;
  }
  std::int64_t parameters(const std::string& deck) {
    EXPECT_EQ(run("trireme check " + deck + " --ranks 1 | sed -n 's/^parameters *//p' | tr -d ,"),
              0)
        << err();
    return std::atoll(out().c_str());
  }

  TemporaryFolder folder_;
};

TEST_F(Init, WritesADeckThatTrainsAndContinues) {
#ifdef TRIREME_ON_DEVICE
  if (run("trireme-engine --help") == 127) GTEST_SKIP() << err();
#endif
  ASSERT_EQ(run("trireme init my.txt -o my.toml --time 2s --ranks 2"), 0) << err();
  for (const char* part : {"data/my/tokenizer.json: 1,024 ids", "the end of the text", "model  ",
                           "mpiexec -n 2 trireme train my.toml", "trireme report runs/my"})
    expect_output(folder_, part);
  const std::string first = read_file(folder_.file("my.toml")).substr(0, 200);
  const std::string schema = first.substr(0, first.find('\n'));
  ASSERT_TRUE(schema.starts_with("#:schema ")) << first;
  EXPECT_TRUE(std::filesystem::exists(schema.substr(9))) << schema;
  const deck::Config c = config("my.toml");
  EXPECT_EQ(c.data.train, "data/my/train.h5");
  EXPECT_EQ(c.data.validation, "data/my/validation.h5");
  EXPECT_EQ(c.checkpoint.restart, "latest");
  EXPECT_EQ(c.run.directory, "runs/my");
  ASSERT_EQ(run("trireme check my.toml --ranks 2"), 0) << err();
  const std::string schedule = " optimizer.decay_steps=" + std::to_string(c.run.steps);
  ASSERT_EQ(run("trireme train my.toml run.steps=2" + schedule), 0) << err();
  ASSERT_EQ(run("trireme train my.toml run.steps=3" + schedule), 0) << err();
  expect_output(folder_, "restarted from runs/my/checkpoints/step_00000002");
}

/// Sizes are those of a machine file, so that they do not depend on this machine.
TEST_F(Init, SizeGrowsWithTimeUpToTheTextsBound) {
  const std::string machine =
      " --ranks 1 --machine '" TRIREME_SOURCE_DIR "/inputs/machines/host.toml'";
  folder_.write("long.txt", words(100'000));
  ASSERT_EQ(run("trireme init long.txt -o d0.toml --vocabulary 300 --time 10s" + machine), 0)
      << err();
  ASSERT_EQ(run("trireme inspect data/d0/train.h5 | sed -n 's/^tokens *//p' | tr -d ,"), 0);
  const double tokens = std::stod(out());
  const std::string again =
      "trireme init data/d0/train.h5 --validation data/d0/validation.h5" + machine;
  double former = 0;
  for (const std::string time : {"1m", "5m", "100:00:00"}) {
    ASSERT_EQ(run(again + " -o d.toml --time " + time), 0) << err();
    const bool bounded = out().find("the amount of text limits the model") != std::string::npos;
    EXPECT_EQ(bounded, time == "100:00:00") << out();
    const auto size = static_cast<double>(parameters("d.toml"));
    EXPECT_GT(size, former) << time;
    former = size;
    const deck::Config c = config("d.toml");
    const auto seen = static_cast<double>(c.run.steps * c.batch.global * c.model.sequence);
    EXPECT_LE(seen / tokens, 16) << "epochs";
    EXPECT_EQ(c.model.dropout > 0, seen / tokens > 4);
    if (bounded)
      EXPECT_GT(seen / tokens, 16 * 0.9);
    else
      EXPECT_GT(seen / size, 20 * 0.9);
    ASSERT_EQ(run("rm d.toml"), 0);
  }
}

TEST_F(Init, TunesAModelOnConversations) {
#ifdef TRIREME_ON_DEVICE
  if (run("trireme-engine --help") == 127) GTEST_SKIP() << err();
#endif
  // A model with a chat format's tokenizer
  std::string chats;
  for (int i = 0; i < 200; ++i)
    chats += R"({"messages": [{"role": "user", "content": "what is )" + std::to_string(i) +
             R"( plus one?"}, {"role": "assistant", "content": "it is )" + std::to_string(i + 1) +
             "\"}]}\n";
  folder_.write("chats.jsonl", chats);
  ASSERT_EQ(run("trireme tokenize my.txt --train-bpe 400 --chat chatml -o base/train.h5"), 0)
      << err();
  // The positions of a GPT are learned for a sequence, which cannot change.
  for (const std::string family : {"llama", "gpt"}) {
    ASSERT_EQ(run("rm -rf *.toml runs model data && trireme init base/train.h5 -o base.toml "
                  "--time 1s --ranks 1 --family " +
                  family),
              0)
        << err();
    ASSERT_EQ(run("trireme train base.toml run.steps=2 optimizer.warmup_steps=0 && "
                  "trireme export runs/base/checkpoints model"),
              0)
        << err();
    ASSERT_EQ(run("trireme init model chats.jsonl --chat chatml --lora -o tuned.toml --ranks 1"), 0)
        << err();
    expect_output(folder_, "trireme import model tuned.toml");
    expect_output(folder_, "generate tuned.toml --chat chatml");
    const deck::Config c = config("tuned.toml");
    EXPECT_EQ(c.model.adapter.kind, AdapterKind::lora);
    EXPECT_TRUE(c.model.packs_documents());
    EXPECT_EQ(c.data.tokenizer, "model");
    EXPECT_EQ(c.model.sequence, family == "gpt" ? config("base.toml").model.sequence : 64);
    ASSERT_EQ(run("trireme import model tuned.toml && "
                  "trireme train tuned.toml run.steps=2 optimizer.warmup_steps=0"),
              0)
        << err();
    expect_output(folder_, "restarted from runs/tuned/checkpoints/step_00000000");
    // Less time than wanted never makes a run longer.
    ASSERT_EQ(run("trireme init model data/tuned/train.h5 --lora -o late.toml --ranks 1 --time 1s"),
              0)
        << err();
    EXPECT_LE(config("late.toml").run.steps, c.run.steps);
  }
}

TEST_F(Init, ImpossibleRequestsGiveOneErrorAndLeaveNoFiles) {
  struct Case {
    const char* line;
    const char* error;
  };
  folder_.write("short.txt", words(60));
  folder_.write("there.toml", "");
  for (const Case& c : {Case{"my.txt -o there.toml", "there.toml exists already"},
                        Case{"my.txt -o deck", "write -o deck.toml"},
                        Case{"my.txt -o x.toml --time soon", "--time soon: expected a duration"},
                        Case{"my.txt -o x.toml --lora", "--lora tunes a model"},
                        Case{"short.txt -o x.toml --tokenizer bytes", "too few"},
                        Case{"missing.txt -o x.toml", "missing.txt: no such file"},
                        Case{"- -o x.toml < my.txt", "give files in place of -"},
                        Case{"my.txt -o x.toml --machine my.txt", "my.txt"},
                        Case{"my.txt -o x.toml --tokenizer none.json", "none.json"}}) {
    EXPECT_EQ(run(std::string("trireme init ") + c.line), 2) << c.line << "\n" << out();
    expect_error(folder_, c.error);
    EXPECT_EQ(err().find("trireme: error:"), err().rfind("trireme: error:")) << err();
    EXPECT_FALSE(exists("x.toml")) << c.line;
    EXPECT_FALSE(exists("data")) << c.line;
    run("rm -rf data");
  }
}

TEST_F(Init, KeepsFilesOfAnEarlierCall) {
  ASSERT_EQ(run("trireme init my.txt -o my.toml --time 1s --ranks 1"), 0) << err();
  ASSERT_EQ(run("rm my.toml"), 0);
  EXPECT_EQ(run("trireme init my.txt -o my.toml --time 1s --ranks 1"), 2);
  expect_error(folder_, "data/my/train.h5 exists already");
  expect_error(folder_, "trireme init data/my/train.h5 --validation data/my/validation.h5");
}

}  // namespace
}  // namespace trireme::commands
