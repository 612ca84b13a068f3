#include <trireme/base/terminal.hpp>
#include <trireme/deck/table.hpp>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <sstream>
#include <string>
#include <utility>

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

TEST(CommandLine, MistakesGiveOneErrorAndExitCodeTwo) {
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

TEST(CommandLine, SuggestsOverridesForOptionsNamedAsKeys) {
  const testing::TemporaryFolder folder;
  const auto error_of = [&](const std::string& line) { return run(folder, line).err; };
  EXPECT_TRUE(contains(error_of("check a.toml --steps 10"),
                       "unknown option --steps; keys of the deck are set without dashes: write "
                       "run.steps=10"));
  EXPECT_TRUE(contains(error_of("check a.toml --lr=1e-3"), "write optimizer.learning_rate=1e-3"));
  EXPECT_TRUE(contains(error_of("plan a.toml --ranks 4 --tp 2"), "write parallel.tensor=2"));
  EXPECT_TRUE(contains(error_of("check a.toml --max-steps --ranks 4"), "write run.steps=..."));
  EXPECT_TRUE(contains(error_of("check a.toml --run.steps 10"), "write run.steps=10"));
  EXPECT_TRUE(contains(error_of("check a.toml --rank 4"), "did you mean --ranks?"));
}

TEST(CommandLine, EveryCommandHasHelpWithAnExample) {
  const testing::TemporaryFolder folder;
  const Outcome overview = run(folder, "--help");
  EXPECT_EQ(overview.code, 0);
  EXPECT_EQ(run(folder, "help").out, overview.out);
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

TEST(CommandLine, PrintsTheVersion) {
  const testing::TemporaryFolder folder;
  const Outcome outcome = run(folder, "--version");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out.find("trireme " TRIREME_VERSION), 0u);
  EXPECT_TRUE(std::regex_search(
      outcome.out, std::regex("^trireme [^ \n]+( \\([-0-9a-z]+\\))?\nKokkos \\d+\\.\\d+[.0-9]* "
                              "\\w.*\nMPI \\S.*\\d.*\nHDF5 \\d+\\.\\d+.*\noneDNN (\\d+\\.\\d+.*|"
                              "none)\nproducts \\w+, attention \\w+, transport \\w+\n$")))
      << outcome.out;
}

/// The lines of a text that are wider than so many characters.
std::string too_wide(const std::string& words, std::size_t columns) {
  std::istringstream in(words);
  std::string found;
  for (std::string line; std::getline(in, line);)
    if (terminal::width(line) > columns) found += line + "\n";
  return found;
}

TEST(CommandLine, HelpListsKeysWithinTheTerminalWidth) {
  const testing::TemporaryFolder folder;
  for (const deck::Section& section : deck::sections()) {
    const Outcome outcome = run(folder, "help " + section.name);
    EXPECT_EQ(outcome.code, 0);
    EXPECT_EQ(outcome.out.find("[" + section.name + "]  "), 0u) << outcome.out;
    for (const deck::Key& key : deck::keys())
      if (key.section == section.name) {
        EXPECT_TRUE(contains(outcome.out, "\n  " + key.name + " ")) << key.full_name();
      }
    EXPECT_EQ(too_wide(outcome.out, 80), "");
  }
  for (const std::string topic : {"optimizer", "exit-codes", "environment"}) {
    setenv("COLUMNS", "60", 1);
    EXPECT_EQ(too_wide(run(folder, "help " + topic).out, 60), "") << topic;
    unsetenv("COLUMNS");
  }
}

TEST(CommandLine, HelpFindsKeysByNameAndAlias) {
  const testing::TemporaryFolder folder;
  for (const char* topic : {"learning_rate", "optimizer.learning_rate", "lr"})
    EXPECT_EQ(run(folder, std::string("help ") + topic).out.find("[optimizer]\n  learning_rate "),
              0u)
        << topic;
  const std::string both = run(folder, "help batch_size").out;
  EXPECT_TRUE(contains(both, "  global ") && contains(both, "  micro ")) << both;
}

TEST(CommandLine, UsageBeginsWithTheProgramName) {
  const testing::TemporaryFolder folder;
  for (const char* line : {"help train", "train --help", "help check", "check --help"})
    EXPECT_TRUE(contains(run(folder, line).out, "\nUsage: trireme ")) << line;
  for (const std::string command : {"train", "eval", "generate", "bench", "check", "plan", "export",
                                    "tokenize", "inspect", "report"})
    EXPECT_EQ(too_wide(run(folder, command + " --help").out, 80), "") << command;
}

TEST(CommandLine, HelpExplainsExitCodesAndEnvironmentVariables) {
  const testing::TemporaryFolder folder;
  const std::string codes = run(folder, "help exit-codes").out;
  for (const char* code : {"0", "1", "2", "3", "75", "76"})
    EXPECT_TRUE(contains(codes, std::string("\n  ") + code + " ")) << codes;
  const std::string variables = run(folder, "help environment").out;
  const std::regex name("(?:getenv\\(|variable\\(|variable = )\"([A-Z][A-Z_]+)\"");
  int found = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(TRIREME_SOURCE_DIR "/src")) {
    if (entry.path().extension() != ".cpp") continue;
    const std::string source = testing::read_file(entry.path().string());
    for (auto it = std::sregex_iterator(source.begin(), source.end(), name);
         it != std::sregex_iterator(); ++it, ++found)
      EXPECT_TRUE(contains(variables, "\n  " + (*it)[1].str() + " ")) << entry.path();
  }
  EXPECT_GT(found, 4);
}

TEST(CommandLine, MustFitGivesExitCodeThree) {
  const testing::TemporaryFolder folder;
  const std::string check =
      "check " TRIREME_SOURCE_DIR "/inputs/gpt2_124m.toml --ranks 8 --machine " TRIREME_SOURCE_DIR
      "/inputs/machines/h100.toml ";
  EXPECT_EQ(run(folder, check + "--must-fit").code, 0);
  EXPECT_EQ(run(folder, check + "parallel.memory_limit=1GB").code, 0);
  const Outcome outcome = run(folder, check + "parallel.memory_limit=1GB --must-fit");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_TRUE(contains(outcome.err, "trireme: error: the plan does not fit: a rank needs "))
      << outcome.err;
  EXPECT_TRUE(contains(outcome.out, "\nmemory per rank\n")) << "the plan is printed";
}

TEST(CommandLine, JsonOfAPlanFollowsTheMemoryLimit) {
  const testing::TemporaryFolder folder;
  for (const auto& [limit, fits] : {std::pair{"1GB", false}, {"60GB", true}}) {
    ASSERT_EQ(
        run(folder, "check " TRIREME_SOURCE_DIR
                    "/inputs/gpt2_124m.toml --ranks 8 --machine " TRIREME_SOURCE_DIR
                    "/inputs/machines/h100.toml --json '" +
                        folder.file("plan.json") + "' parallel.memory_limit=" + std::string(limit))
            .code,
        0);
    const auto plan = nlohmann::json::parse(testing::read_file(folder.file("plan.json")));
    EXPECT_EQ(plan["fits"], fits) << limit;
    EXPECT_EQ(plan["memory_limit"], fits ? 60'000'000'000 : 1'000'000'000);
  }
}

TEST(CommandLine, HelpDeckListsKeys) {
  const testing::TemporaryFolder folder;
  const Outcome outcome = run(folder, "help deck");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_TRUE(contains(outcome.out, "[optimizer]"));
  EXPECT_TRUE(contains(outcome.out, "learning_rate"));
}

/// The schema accepts each key's default and no key of another name.
TEST(CommandLine, HelpDeckPrintsASchema) {
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

TEST(CommandLine, UnwritableOutputIsAnError) {
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

TEST(CommandLine, EngineCommandsStartTheEngineNextToTheProgram) {
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
