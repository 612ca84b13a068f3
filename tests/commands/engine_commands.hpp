#pragma once

#include <gtest/gtest.h>

#include <commands/recorded.hpp>
#include <support/shell.hpp>

#include <string>

/// Tests of the engine's commands, run from a shell as by a user.
namespace trireme::commands {

using namespace trireme::testing;

#ifdef TRIREME_ON_DEVICE
inline constexpr bool engine_needs_driver = true;
#else
inline constexpr bool engine_needs_driver = false;
#endif

/// A folder with a tokenized text and a deck of a very small model.
class EngineCommands : public ::testing::Test {
 protected:
  void SetUp() override {
    if (engine_needs_driver && run("trireme-engine --help") == 127)
      GTEST_SKIP() << "trireme-engine does not start here: " << err();
  }

  EngineCommands() {
    std::string text;
    for (int i = 0; i < 400; ++i)
      text += "the quick brown fox " + std::to_string(i * i % 97) + " jumps\n";
    folder_.write("text", text);
    folder_.write("deck.toml", R"([run]
directory = "run"
steps = 12
log_every = 4
[model]
layers = 1
hidden = 16
heads = 2
sequence = 32
dropout = 0.1
[batch]
global = 4
micro = 1
[optimizer]
learning_rate = 1e-2
warmup_steps = 2
[data]
train = "data/tokens.h5"
validation = "data/validation.h5"
)");
    EXPECT_EQ(shell(folder_,
                    "trireme tokenize -o data/tokens.h5 --document-separator '\\n' --validation "
                    "data/validation.h5 --validation-fraction 0.1 text"),
              0);
  }

  int run(const std::string& line) { return shell(folder_, line); }
  std::string out() const { return read_file(folder_.file("out")); }
  std::string err() const { return read_file(folder_.file("err")); }
  std::string file(const std::string& name) const { return read_file(folder_.file(name)); }

  static std::string mpiexec(int ranks) {
    return std::string(TRIREME_MPIEXEC) + " -n " + std::to_string(ranks) + " ";
  }

  RunHistory recorded(const std::string& run_folder = "run") const {
    return recorded_run(folder_, run_folder);
  }
  RunJob last_job(const std::string& run_folder = "run") const {
    return recorded_job(folder_, run_folder);
  }

  /// The line of `out` that begins with `head`.
  std::string line_of(const std::string& head) const {
    const std::string all = "\n" + out();
    const auto at = all.find("\n" + head);
    return at == std::string::npos ? "" : all.substr(at + 1, all.find('\n', at + 1) - at - 1);
  }

  TemporaryFolder folder_;
};

inline int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

}  // namespace trireme::commands
