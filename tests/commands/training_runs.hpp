#pragma once

#include <commands/recorded.hpp>
#include <support/job.hpp>
#include <support/shell.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

namespace trireme::commands::testing {

using namespace trireme::testing;

inline bool soak() {
  return std::getenv("TRIREME_SOAK") != nullptr;
}

inline int occurrences(const std::string& text, const std::string& part) {
  int n = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

/// A folder with a tokenized text and a deck of a small model with odd sizes and dropout.
class TrainingRuns : public ::testing::Test {
 protected:
#ifdef TRIREME_ON_DEVICE
  void SetUp() override {
    if (run("trireme-engine --help") == 127)
      GTEST_SKIP() << "trireme-engine does not start here: " << err();
  }
#endif

  TrainingRuns() {
    std::string words;
    for (int i = 0; i < 400; ++i)
      words += "the quick brown fox " + std::to_string(i * i % 97) + " jumps\n";
    folder_.write("text", words);
    EXPECT_EQ(shell(folder_, "trireme tokenize -o data/tokens.h5 --document-separator '\\n' text"),
              0);
    write_deck(1, 18, 3, 29);
  }

  void write_deck(int layers, int hidden, int heads, int sequence) const {
    std::ostringstream deck;
    deck << R"([run]
directory = "run"
steps = 12
log_every = 1
[model]
layers = )"
         << layers << "\nhidden = " << hidden << "\nheads = " << heads
         << "\nsequence = " << sequence << R"(
vocabulary = 257
dropout = 0.1
[batch]
global = 12
micro = 1
[optimizer]
learning_rate = 1e-2
warmup_steps = 2
decay_steps = 1000
[data]
train = "data/tokens.h5"
)";
    folder_.write("deck.toml", deck.str());
  }

  int run(const std::string& line) const {
    return shell(folder_, line);
  }
  std::string out() const {
    return read_file(folder_.file("out"));
  }
  std::string err() const {
    return read_file(folder_.file("err"));
  }
  std::string file(const std::string& name) const {
    return read_file(folder_.file(name));
  }

  static std::string train(int ranks, const std::string& arguments) {
    const std::string launcher =
        ranks == 1 ? "" : std::string(TRIREME_MPIEXEC) + " -n " + std::to_string(ranks) + " ";
    return launcher + "trireme train deck.toml " + arguments;
  }

  /// The literal values of a key, line by line, in metrics.jsonl.
  std::vector<std::string> metrics(const std::string& run_folder, const std::string& name) const {
    const std::string lines = file(run_folder + "/metrics.jsonl");
    std::vector<std::string> found;
    const std::string key = "\"" + name + "\":";
    for (auto at = lines.find(key); at != std::string::npos; at = lines.find(key, at + 1))
      found.push_back(
          lines.substr(at + key.size(), lines.find_first_of(",}", at) - at - key.size()));
    return found;
  }

  /// The last step in metrics.jsonl; 0 if there is none.
  std::int64_t last_step(const std::string& run_folder) const {
    const auto steps = metrics(run_folder, "step");
    return steps.empty() ? 0 : std::atoll(steps.back().c_str());
  }

  RunJob last_job(const std::string& run_folder = "run") const {
    return recorded_job(folder_, run_folder);
  }

  /// Names in a folder with this ending, ascending.
  std::vector<std::string> names(const std::string& directory, const std::string& ending) const {
    std::vector<std::string> found;
    std::error_code missing;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.file(directory), missing))
      if (entry.path().filename().string().ends_with(ending))
        found.push_back(entry.path().filename().string());
    std::sort(found.begin(), found.end());
    return found;
  }

  /// The steps of the folders with final names, ascending.
  std::vector<std::int64_t> saved_steps(const std::string& directory) const {
    std::vector<std::int64_t> steps;
    for (const auto& name : names(directory, ""))
      if (name.starts_with("step_") && name.size() == 13) steps.push_back(std::atoll(&name[5]));
    return steps;
  }
  std::int64_t newest_step(const std::string& directory) const {
    const auto steps = saved_steps(directory);
    return steps.empty() ? 0 : steps.back();
  }
  static std::string folder_name(std::int64_t step) {
    const auto digits = std::to_string(step);
    return "step_" + std::string(8 - digits.size(), '0') + digits;
  }

  void expect_all_verified(const std::string& directory) const {
    for (const auto step : saved_steps(directory))
      EXPECT_EQ(run("trireme inspect --verify " + directory + "/" + folder_name(step)), 0) << err();
  }

  /// Expects that two checkpoints hold bitwise equal arrays.
  void expect_equal_checkpoints(const std::string& a, const std::string& b) const {
    ASSERT_EQ(run("trireme inspect --diff " + a + " " + b), 0) << err();
    const auto line = out().substr(out().rfind("equal"));
    std::istringstream words(line);
    std::string word;
    std::string of;
    int equal = 0;
    int all = 0;
    words >> word >> equal >> of >> all;
    EXPECT_EQ(equal, all) << out();
    EXPECT_GT(all, 0) << out();
  }

  void expect_one_error(const std::vector<std::string>& parts) const {
    EXPECT_EQ(occurrences(err(), "trireme: error"), 1) << err();
    for (const auto& part : parts) expect_error(folder_, part);
  }

  TemporaryFolder folder_;
};

}  // namespace trireme::commands::testing
