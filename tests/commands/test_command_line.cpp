#include <trireme/deck/table.hpp>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "support/temporary_folder.hpp"

namespace trireme::commands {
namespace {

const std::string program = TRIREME_BINARY_DIR "/bin/trireme";

struct Outcome {
  int code = -1;
  std::string out;
  std::string err;
};

/// Runs the program, or a copy of it, with a shell's arguments. Output goes through files of
/// `folder`.
Outcome run(const testing::TemporaryFolder& folder, const std::string& arguments,
            const std::string& executable = program) {
  const std::string line = "'" + executable + "' " + arguments + " >'" + folder.file("out") +
                           "' 2>'" + folder.file("err") + "'";
  const int status = std::system(line.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, testing::read_file(folder.file("out")),
          testing::read_file(folder.file("err"))};
}

bool contains(const std::string& whole, const std::string& part) {
  return whole.find(part) != std::string::npos;
}

TEST(CommandLine, MistakesAreOneErrorOnStderrAndExitCodeTwo) {
  const testing::TemporaryFolder folder;
  for (const char* line : {"", "frobnicate", "--frobnicate", "help nothing", "help deck more",
                           "help --tokens 3", "help --markdown", "''", "-- help deck x y"}) {
    const Outcome outcome = run(folder, line);
    EXPECT_EQ(outcome.code, 2) << line << "\n" << outcome.err;
    EXPECT_EQ(outcome.out, "") << line;
    EXPECT_EQ(outcome.err.find("trireme: error: "), 0u) << line << "\n" << outcome.err;
    EXPECT_EQ(outcome.err.find("trireme: error: ", 1), std::string::npos) << outcome.err;
  }
  EXPECT_TRUE(contains(run(folder, "trian x.toml").err, "did you mean train?"));
  EXPECT_TRUE(contains(run(folder, "help trian").err, "did you mean train?"));
}

TEST(CommandLine, EveryCommandHasHelpWithAnExample) {
  const testing::TemporaryFolder folder;
  const Outcome overview = run(folder, "--help");
  EXPECT_EQ(overview.code, 0);
  for (const std::string command : {"train", "eval", "generate", "check", "draw", "inspect",
                                    "export", "import", "tokenize", "help"}) {
    EXPECT_TRUE(contains(overview.out, "\n  " + command + " ")) << overview.out;
    for (const std::string& line : {command + " --help", command + " -h", "help " + command}) {
      const Outcome outcome = run(folder, line);
      EXPECT_EQ(outcome.code, 0) << line << "\n" << outcome.err;
      EXPECT_TRUE(contains(outcome.out, "Example:\n  ") || contains(outcome.out, "Examples:\n  "))
          << line << "\n"
          << outcome.out;
      EXPECT_TRUE(contains(outcome.out, "trireme " + command)) << line << "\n" << outcome.out;
      EXPECT_EQ(outcome.err, "");
    }
  }
}

TEST(CommandLine, VersionIsPrinted) {
  const testing::TemporaryFolder folder;
  const Outcome outcome = run(folder, "--version");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, "trireme " TRIREME_VERSION "\n");
}

TEST(CommandLine, HelpDeckListsKeys) {
  const testing::TemporaryFolder folder;
  const Outcome outcome = run(folder, "help deck");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_TRUE(contains(outcome.out, "[optimizer]"));
  EXPECT_TRUE(contains(outcome.out, "learning_rate"));
}

/// The schema accepts each key's default and no key of another name.
TEST(CommandLine, HelpDeckPrintsASchemaOfAllKeys) {
  const testing::TemporaryFolder folder;
  const Outcome outcome = run(folder, "help deck --schema");
  EXPECT_EQ(outcome.code, 0);
  const auto schema = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(schema["additionalProperties"], false);
  for (const deck::Key& key : deck::keys()) {
    const auto& section = schema["properties"][key.section];
    EXPECT_EQ(section["additionalProperties"], false) << key.section;
    ASSERT_TRUE(section["properties"].contains(key.name)) << key.full_name();
    const auto& entry = section["properties"][key.name];
    EXPECT_TRUE(contains(entry["description"], key.help)) << key.full_name();
    if (!entry.contains("default")) continue;
    const auto& fallback = entry["default"];
    if (entry.contains("enum")) {
      EXPECT_NE(std::ranges::find(entry["enum"], fallback), entry["enum"].end()) << entry;
    } else if (entry["type"] == "integer") {
      EXPECT_TRUE(fallback.is_number_integer()) << entry;
      EXPECT_TRUE(!entry.contains("minimum") || fallback >= entry["minimum"]) << entry;
      EXPECT_TRUE(!entry.contains("maximum") || fallback <= entry["maximum"]) << entry;
    }
  }
  const auto& run_keys = schema["properties"]["run"]["properties"];
  EXPECT_EQ(run_keys["steps"]["type"], "integer");
  EXPECT_EQ(run_keys["steps"]["minimum"], 1);
  EXPECT_EQ(run_keys["time_limit"]["type"], "string");
  EXPECT_EQ(run(folder, "help machine --schema").code, 0);
}

TEST(CommandLine, OutputThatCannotBeWrittenIsAnError) {
  const int status = std::system(("'" + program + "' help deck >/dev/full 2>/dev/null").c_str());
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

/// A copy of the program beside an engine of the test's own.
std::string installed_beside(const testing::TemporaryFolder& folder, const std::string& engine) {
  std::filesystem::copy_file(program, folder.file("trireme"));
  if (!engine.empty())
    std::filesystem::permissions(folder.write("trireme-engine", engine),
                                 std::filesystem::perms::owner_all);
  return folder.file("trireme");
}

TEST(CommandLine, EngineCommandsRunTheEngineBesideTheProgram) {
  const testing::TemporaryFolder folder;
  const std::string copy =
      installed_beside(folder, "#!/bin/sh\nfor a in \"$@\"; do echo \"<$a>\"; done\nexit 75\n");
  for (const std::string command : {"train", "eval", "generate"}) {
    const Outcome outcome = run(folder, command + " 'a deck.toml' --x run.steps=5", copy);
    EXPECT_EQ(outcome.code, 75) << outcome.err;
    EXPECT_EQ(outcome.out, "<" + command + ">\n<a deck.toml>\n<--x>\n<run.steps=5>\n");
  }
  EXPECT_TRUE(contains(run(folder, "train --help", copy).out, "mpiexec")) << "answered without it";
}

TEST(CommandLine, MissingOrBrokenEngineIsAnError) {
  const testing::TemporaryFolder missing, broken;
  const Outcome outcome = run(missing, "train a.toml", installed_beside(missing, ""));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_TRUE(contains(outcome.err, "trireme-engine, which is missing")) << outcome.err;
  const std::string copy = installed_beside(broken,
                                            "\x7f"
                                            "ELF, not really");
  const Outcome second = run(broken, "train a.toml", copy);
  EXPECT_EQ(second.code, 1);
  EXPECT_TRUE(contains(second.err, "cannot start ")) << second.err;
}

}  // namespace
}  // namespace trireme::commands
