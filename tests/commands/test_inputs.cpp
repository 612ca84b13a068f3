#include <gtest/gtest.h>

#include <support/shell.hpp>

#include <string>
#include <vector>

/// What every command makes of inputs that are no files.
namespace trireme::commands {
namespace {

using namespace trireme::testing;

class Inputs : public ::testing::Test {
 protected:
  Inputs() {
    folder_.write("text", "some text\n");
    folder_.write("deck.toml", R"([run]
directory = "run"
steps = 3
[model]
layers = 1
hidden = 16
heads = 2
sequence = 8
[batch]
global = 4
micro = 1
[data]
train = "tokens.h5"
)");
    EXPECT_EQ(run("trireme tokenize -o tokens.h5 text"), 0) << err();
    EXPECT_EQ(run("mkfifo pipe; mkdir run step_00000001 model shards words; "
                  "for f in run/metrics.jsonl run/events.jsonl run/deck.toml "
                  "step_00000001/manifest.json model/config.json shards/model.safetensors "
                  "words/vocab.json words/merges.txt t.idx; do mkfifo $f; done; "
                  "cp '" TRIREME_SOURCE_DIR "/tests/golden/gpt2_hugging_face/tied/config.json' "
                  "shards; touch t.bin"),
              0)
        << err();
  }
  int run(const std::string& line) { return shell(folder_, line); }
  std::string err() const { return read_file(folder_.file("err")); }

  TemporaryFolder folder_;
};

TEST_F(Inputs, EveryCommandRejectsPipesAndDevices) {
  const std::vector<std::string> commands{
      "check pipe",
      "check deck.toml data.train=pipe",
      "check deck.toml data.tokenizer=pipe",
      "check deck.toml data.tokenizer=words",
      "check deck.toml --machine pipe",
      "check deck.toml data.train=t",
      "check deck.toml parallel.schedule=file parallel.program=pipe",
      "plan pipe --ranks 2",
      "plan deck.toml --ranks 2 --machine pipe",
      "draw pipe",
      "draw deck.toml --measured pipe",
      "tokenize -o new.h5 pipe",
      "tokenize -o new.h5 --tokenizer pipe text",
      "inspect pipe",
      "inspect step_00000001",
      "inspect --decode pipe",
      "inspect --decode --tokenizer pipe tokens.h5",
      "export step_00000001 out",
      "import model",
      "import shards",
      "report run",
  };
  for (const std::string& command : commands) {
    EXPECT_EQ(run("timeout 30 trireme " + command + " < /dev/null"), 2) << command << "\n" << err();
    expect_error(folder_, "is a named pipe");
    const auto pipe = command.find(" pipe");
    if (pipe == std::string::npos || command.ends_with("draw deck.toml --measured pipe")) continue;
    std::string device = command;
    device.replace(pipe, 5, " /dev/zero");
    EXPECT_EQ(run("timeout 30 trireme " + device + " < /dev/null"), 2) << device << "\n" << err();
    expect_error(folder_, "is a device");
  }
}

TEST_F(Inputs, ReadStandardInputIfNamed) {
  EXPECT_EQ(run("cat deck.toml | timeout 30 trireme check /dev/stdin"), 0) << err();
  EXPECT_EQ(run("timeout 30 trireme check /dev/stdin < deck.toml"), 0) << err();
  EXPECT_EQ(run("bash -c 'timeout 30 trireme check <(cat deck.toml)'"), 0) << err();
  for (const char* input : {"- < text", "/dev/stdin < text", "text"})
    ASSERT_EQ(run(std::string("timeout 30 trireme tokenize -o a.h5 ") + input +
                  " && trireme inspect --decode a.h5"),
              0)
        << err();
  EXPECT_EQ(run("cat text | timeout 30 trireme tokenize -o a.h5 /dev/stdin && "
                "cat text | timeout 30 trireme tokenize -o a.h5 -"),
            0)
      << err();
}

TEST_F(Inputs, OverridesMustBeUtf8) {
  EXPECT_EQ(run("trireme check --resolved deck.toml \"$(printf 'run.directory=r\\303\\244um')\""),
            0)
      << err();
  expect_output(folder_, "directory = \"r\303\244um\"");
  for (const char* bytes :
       {"\\377", "r\\303", "\\300\\200", "\\355\\240\\200", "\\364\\220\\200\\200"}) {
    EXPECT_EQ(
        run(std::string("trireme check deck.toml \"$(printf 'run.directory=a") + bytes + "')\""),
        2);
    expect_error(folder_, "run.directory=a");
    expect_error(folder_, "is not UTF-8");
  }
}

TEST_F(Inputs, RejectADamagedTokenFile) {
  // The last byte of the tokens is before the offsets: every byte of both is looked at.
  ASSERT_EQ(run("cp tokens.h5 t.h5 && trireme inspect --decode t.h5"), 0) << err();
  const std::string content = read_file(folder_.file("tokens.h5"));
  int refused = 0;
  for (std::size_t at = 0; at < content.size(); at += content.size() / 40 + 1) {
    std::string damaged = content;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    folder_.write("t.h5", damaged);
    const int code = run("trireme inspect --decode t.h5");
    EXPECT_TRUE(code == 1 || code == 2) << "byte " << at;
    EXPECT_EQ(read_file(folder_.file("out")), "") << "byte " << at;
    refused += code != 0 ? 1 : 0;
  }
  EXPECT_GT(refused, 20);
}

}  // namespace
}  // namespace trireme::commands
