#include <gtest/gtest.h>

#include <support/shell.hpp>

#include <nlohmann/json.hpp>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

namespace trireme::commands {
namespace {

using namespace trireme::testing;
using Json = nlohmann::json;

#ifdef TRIREME_ON_DEVICE
constexpr bool engine_needs_driver = true;
#else
constexpr bool engine_needs_driver = false;
#endif

/// A folder with a deck of a very small model, and text.
class BenchCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    if (engine_needs_driver && run("trireme-engine --help") == 127)
      GTEST_SKIP() << "trireme-engine does not start here: " << err();
  }

  BenchCommand() {
    std::string text;
    for (int i = 0; i < 200; ++i) text += "the quick brown fox " + std::to_string(i) + " jumps\n";
    folder_.write("text", text);
    folder_.write("deck.toml", R"([run]
directory = "run"
steps = 12
[model]
layers = 2
hidden = 16
heads = 2
sequence = 32
vocabulary = 257
[batch]
global = 4
micro = 1
[data]
train = "tokens.h5"
)");
  }

  int run(const std::string& line) { return shell(folder_, line); }
  std::string err() const { return read_file(folder_.file("err")); }
  std::string file(const std::string& name) const { return read_file(folder_.file(name)); }
  bool exists(const std::string& name) const { return std::filesystem::exists(folder_.file(name)); }

  static std::string mpiexec(int ranks) {
    return std::string(TRIREME_MPIEXEC) + " -n " + std::to_string(ranks) + " ";
  }

  TemporaryFolder folder_;
};

double quantity(const Json& rows, const std::string& section, const std::string& name) {
  for (const auto& row : rows)
    if (row["section"] == section && row["name"] == name) return row["quantity"];
  ADD_FAILURE() << "no row " << section << "." << name;
  return 0;
}

TEST_F(BenchCommand, PrintsEachRowAndWritesItAsJson) {
  ASSERT_EQ(run("trireme tokenize -o tokens.h5 text"), 0) << err();
  ASSERT_EQ(run(mpiexec(2) + "trireme bench deck.toml --only matmul,checkpoint,background "
                             "--rounds 2 --json bench.json parallel.tensor=2"),
            0)
      << err();
  const Json json = Json::parse(file("bench.json"));
  EXPECT_EQ(json["format"], 1);
  EXPECT_EQ(json["ranks"], 2);
  std::set<std::string> sections;
  for (const auto& row : json["rows"]) {
    sections.insert(row["section"]);
    const std::string name = row["name"];
    expect_output(folder_, std::string(row["section"]) + "." + name);
    // Slowing is a difference of noisy times and may be negative.
    if (name != "slowed_seconds" && name != "delay_share") {
      EXPECT_GT(row["quantity"], 0) << row;
    }
    EXPECT_FALSE(std::string(row["unit"]).empty()) << row;
    EXPECT_FALSE(std::string(row["convention"]).empty()) << row;
  }
  EXPECT_EQ(sections, (std::set<std::string>{"matmul", "checkpoint", "background"}));
  // Embeddings 257 · 16 and 32 · 16; per layer 12 · 16² and 13 · 16; the last norm: weights and two
  // moments of each, all in fp32.
  const std::int64_t parameters = (257 + 32) * 16 + 2 * (12 * 256 + 13 * 16) + 2 * 16;
  EXPECT_EQ(quantity(json["rows"], "checkpoint", "bytes"), 3 * 4 * parameters);
  EXPECT_FALSE(exists("run")) << "a bench leaves nothing";
}

TEST_F(BenchCommand, LeavesCheckpointsOfTheRunAlone) {
  std::filesystem::create_directories(folder_.file("run/checkpoints/step_00000003"));
  std::filesystem::create_directories(folder_.file("run/checkpoints/bench.temporary"));
  folder_.write("run/checkpoints/step_00000003/manifest.json", "{}");
  folder_.write("run/checkpoints/latest", "step_00000003\n");
  folder_.write("run/checkpoints/bench.temporary/plain-0", "of a bench that was killed");
  ASSERT_EQ(run("trireme bench deck.toml --only checkpoint --rounds 1"), 0) << err();
  EXPECT_EQ(file("run/checkpoints/step_00000003/manifest.json"), "{}");
  EXPECT_EQ(file("run/checkpoints/latest"), "step_00000003\n");
  EXPECT_FALSE(exists("run/checkpoints/bench.temporary"));
}

TEST_F(BenchCommand, MistakesAreOneErrorAndLeaveNothing) {
  const auto expect_one_error = [&](const std::string& line, int code,
                                    const std::vector<std::string>& words) {
    EXPECT_EQ(run(mpiexec(2) + "trireme bench deck.toml --rounds 1 " + line), code) << err();
    for (const auto& word : words) expect_error(folder_, word);
    const std::string all = err();
    EXPECT_EQ(all.find("trireme: error:"), all.rfind("trireme: error:")) << all;
    EXPECT_FALSE(exists("run")) << line;
  };
  expect_one_error("--only chekpoint", 2, {"chekpoint", "matmul, checkpoint"});
  expect_one_error("--only background", 2, {"tokens.h5", "trireme tokenize"});
  expect_one_error("--only matmul --json nowhere/bench.json", 2, {"nowhere/bench.json"});
  folder_.write("file", "");
  expect_one_error("--only checkpoint checkpoint.directory=file/checkpoints", 2,
                   {"[checkpoint] directory", "choose a folder that can be written"});
  expect_one_error("--only checkpoint model.hidden=1048576", 1,
                   {"[checkpoint] directory", "are free"});
}

}  // namespace
}  // namespace trireme::commands
