#include <trireme/deck/deck.hpp>

#include <trireme/base/check.hpp>
#include <trireme/deck/key_file.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <sstream>
#include <string>

#include "deck/example.hpp"
#include "support/temporary_folder.hpp"

namespace trireme::deck {
namespace {

TEST(Mistakes, UnknownKeyNamesPlaceLineAndNearestKey) {
  const std::string message = mistakes_of(replaced(example, "layers", "layer"));
  expect_contains(message, "a.toml:2:1: unknown key layer in [model]; did you mean layers?");
  expect_contains(message, "2 | layer = 2");
}

TEST(Mistakes, KeyOfAnotherSectionNamesItsSection) {
  expect_contains(mistakes_of(example + "steps = 3\n"),
                  "a.toml:11:1: unknown key steps in [data]; it belongs to [run]");
  expect_contains(mistakes_of("steps = 3\n" + example),
                  "a.toml:1:1: steps is outside of any section; it belongs to [run]");
}

TEST(Mistakes, UnknownSectionNamesTheNearest) {
  expect_contains(mistakes_of(example + "[optimiser]\n"),
                  "a.toml:11:2: unknown section [optimiser]; did you mean [optimizer]?");
  expect_contains(mistakes_of(example + "[[run]]\n"), "[[run]] is a list of tables; write [run]");
}

TEST(Mistakes, KeysOfOtherProgramsSuggestTheEquivalent) {
  const std::string in_data = example;  // ends in [data]
  expect_contains(mistakes_of(in_data + "val_data = \"v.h5\"\n"),
                  "unknown key val_data in [data]; did you mean validation?");
  expect_contains(mistakes_of(in_data + "lr = 1e-3\n"),
                  "unknown key lr in [data]; did you mean learning_rate of [optimizer]?");
  expect_contains(mistakes_of(in_data + "batch_size = 8\n"),
                  "did you mean global of [batch] or micro of [batch]?");
  expect_contains(mistakes_of(in_data + "epochs = 3\n"),
                  "did you mean steps of [run] (steps = epochs · tokens of the training file");
  expect_contains(mistakes_of(in_data + "[Training]\n"), "did you mean [run]?");
  expect_contains(mistakes_of(example, {"max_steps=10"}), "; write run.steps=10");
  expect_contains(mistakes_of(example, {"MAX-STEPS=10"}), "; write run.steps=10");
  expect_contains(mistakes_of(example, {"optim.lr=1e-3"}),
                  "unknown section optim; write optimizer.learning_rate=1e-3");
  expect_contains(mistakes_of(example, {"epochs=3"}), "; write run.steps=... (steps = epochs");
}

TEST(Mistakes, EveryAliasRefersToAnExistingKeyOrSection) {
  const FileKind& kind = deck_kind();
  for (const Alias& alias : kind.aliases) {
    const std::size_t dot = alias.name.find('.');
    if (dot == std::string_view::npos) {
      EXPECT_TRUE(std::ranges::any_of(sections(), [&](const Section& section) {
        return section.name == alias.name;
      })) << alias.name;
      continue;
    }
    const KeyText* key = kind.find(alias.name.substr(0, dot), alias.name.substr(dot + 1));
    ASSERT_NE(key, nullptr) << alias.name;
    std::istringstream words{std::string(alias.words)};
    int number = 0;
    for (std::string word; words >> word; ++number) {
      const auto meant = kind.meant_by(word);
      EXPECT_TRUE(std::ranges::any_of(meant, [&](const Meant& m) { return m.key == key; }))
          << word << " of " << alias.name << " is the name of a key";
    }
    EXPECT_GT(number, 0) << alias.name;
  }
  for (const char* word : {"lr", "learning_rate", "tp", "pp", "dp", "cp", "epochs", "batch_size",
                           "seq_len", "max_steps", "n_layer", "d_model"})
    EXPECT_FALSE(kind.meant_by(word).empty()) << word;
}

TEST(Mistakes, TwoMistakesInTwoLinesAreBothReported) {
  const std::string message = mistakes_of(
      replaced(replaced(example, "heads = 4", "heads = \"four\""), "micro = 2", "micro = 0"));
  expect_contains(message, "2 mistakes in a.toml");
  expect_contains(message,
                  "a.toml:4:9: [model] heads: expected an integer from 1 to 16777216, found the "
                  "string \"four\"\n  4 | heads = \"four\"\n    |         ^");
  expect_contains(message,
                  "a.toml:8:9: [batch] micro: expected an integer from 1 to 1073741824, found the "
                  "integer 0");
}

TEST(Mistakes, FileCommandLineAndCrossChecksAreReportedTogether) {
  const std::string message = mistakes_of(
      replaced(replaced(example, "heads = 4", "heads = 7"), "sequence = 16", "sequence = 1.5"),
      {"run.steps=ten", "batch.micro=5"});
  expect_contains(message, "4 mistakes in a.toml");
  expect_contains(message, "a.toml:5:12: [model] sequence: expected an integer");
  expect_contains(message, "command line: run.steps=ten: expected an integer");
  expect_contains(message, "[model] heads = 7 (a.toml:4) does not divide [model] hidden = 40");
  expect_contains(
      message, "[batch] micro = 5 (command line) does not divide [batch] global = 12 (a.toml:7)");
}

TEST(Mistakes, MissingKeysAreListed) {
  const std::string message = mistakes_of("# nothing yet\n");
  for (const char* name : {"[model] layers", "[model] hidden", "[model] heads", "[model] sequence",
                           "[batch] global", "[batch] micro", "[data] train"})
    expect_contains(message, std::string(name) + " is missing");
}

TEST(Mistakes, DuplicateKeyIsReportedAtItsSecondLine) {
  const std::string message = mistakes_of(replaced(example, "hidden = 40", "layers = 3"));
  expect_contains(message, "a.toml:3:");
  expect_contains(message, "layers");
}

TEST(Mistakes, WrongTypesAreRejected) {
  const auto with = [](const std::string& lines) { return mistakes_of(example + lines); };
  expect_contains(with("[run]\nsteps = 1.0\n"), "found the floating-point number 1.0; write 1");
  expect_contains(with("[run]\nsteps = 1e3\n"),
                  "found the floating-point number 1000.0; write 1000");
  expect_contains(with("[run]\nsteps = 1.5\n"), "found the floating-point number 1.5");
  expect_contains(with("[run]\ndirectory = 1e3\n"), "found the floating-point number 1000.0");
  expect_contains(with("[run]\nsteps = true\n"), "found true");
  expect_contains(with("[run]\nsteps = [1]\n"), "found the list [1]");
  expect_contains(with("[run]\nsteps = [[1]]\n"), "found an array");
  expect_contains(with("[run]\nsteps = {a = 1}\n"), "found a table");
  expect_contains(with("[run]\nsteps = 2020-01-01\n"), "found a date or time");
  expect_contains(with("[run]\ntime_limit = 60\n"), "expected a duration such as \"01:30:00\"");
  expect_contains(with("[model.dropout]\na = 1\n"), "dropout");
  expect_contains(with("[optimizer]\nbeta1 = \"0.9\"\n"),
                  "expected a number of at least 0 and below 1");
  expect_contains(with("[precision]\ncompute = \"fp8\"\n"),
                  "expected one of \"fp32\", \"fp64\", \"bf16\", \"fp16\"");
  expect_contains(with("[run]\ndirectory = \"\"\n"), "a path (a non-empty string)");
  expect_contains(with("[run]\ndirectory = \"a\\u0000b\"\n"), "\"a\\u0000b\"");
}

TEST(Mistakes, NumbersThatOverflowAreRejected) {
  const auto with = [](const std::string& lines) { return mistakes_of(example + lines); };
  for (const char* tiny : {"1e-400", "-1e-400", "0.001e-999", "2_0.5E-1000"})
    expect_contains(with(std::string("[optimizer]\nlearning_rate = ") + tiny + " # note\n"),
                    std::string("found ") + tiny + ", which is too close to 0");
  for (const char* zero : {"0.0", "-0.0", "0e5", "0.000E-400"})
    EXPECT_NO_THROW(
        parse_deck(example + "[optimizer]\nweight_decay = " + zero + "\n", "a.toml", {}));
  expect_contains(with("[optimizer]\nlearning_rate = 1e400\n"), "the number is too large");
  const auto given = [](const std::string& override) { return mistakes_of(example, {override}); };
  expect_contains(given("optimizer.learning_rate=1e-400"), "\"1e-400\", which is too close to 0");
  expect_contains(given("optimizer.learning_rate=1e400"), "\"1e400\", which is too large");
  expect_contains(given("optimizer.learning_rate=-1e400"), "\"-1e400\", which is too small");
  expect_contains(given("run.steps=99999999999999999999"), "which is too large");
  expect_contains(given("run.steps=-99999999999999999999"), "which is too small");
}

TEST(Mistakes, NumbersOutOfRangeAreRejected) {
  for (const char* line :
       {"[optimizer]\nlearning_rate = nan", "[optimizer]\nlearning_rate = inf",
        "[optimizer]\nlearning_rate = -inf", "[optimizer]\nlearning_rate = -1",
        "[optimizer]\nlearning_rate = 1e999", "[optimizer]\nepsilon = 0", "[optimizer]\nbeta2 = 1",
        "[run]\nsteps = 0", "[run]\nsteps = 4294967296", "[run]\nseed = -1",
        "[run]\nsteps = 9223372036854775808", "[run]\ntime_limit = \"1:60:00\"",
        "[run]\ntime_limit = \"1:00\"", "[run]\ntime_limit = \"-1:00:00\"",
        "[run]\ntime_limit = \"99999999999999999999:00:00\""}) {
    const std::string message = mistakes_of(example + line + "\n");
    expect_contains(message, "a.toml:12:");
  }
}

TEST(Mistakes, OverridesAreQuotedInTheirErrors) {
  for (const char* written : {"run.steps=1.5",
                              "run.steps=",
                              "run.steps=1_",
                              "run.steps=_1",
                              "run.steps=1__0",
                              "run.steps=99999999999999999999",
                              "run.steps=0x10",
                              "run.steps= 5",
                              "run.seed=-1",
                              "runsteps=5",
                              "run.steps",
                              "=",
                              ".=",
                              "run.=5",
                              "run.step=5",
                              "runs.steps=5",
                              "model.tied_embeddings=yes",
                              "optimizer.beta1=nan",
                              "optimizer.learning_rate=inf",
                              "optimizer.learning_rate=1e999",
                              "parallel.schedule=1F1B",
                              "run.time_limit=5",
                              "data.train=",
                              ""})
    expect_contains(mistakes_of(example, {written}),
                    std::string("command line: ") + written + ": ");
  expect_contains(mistakes_of(example, {"run.step=5"}), "did you mean steps?");
  expect_contains(mistakes_of(example, {"runs.steps=5"}), "did you mean [run]?");
  expect_contains(mistakes_of(example, {"run.steps=99999999999999999999"}), "too large");
}

TEST(Mistakes, EmptyAndBinaryDecksAreRejected) {
  expect_contains(mistakes_of(""), "a.toml is empty");
  expect_contains(mistakes_of(" \n\t\r\n"), "a.toml is empty");
  expect_contains(mistakes_of(std::string("\x89HDF\r\n\x1a\n\0\0", 10)), "a.toml is a binary file");
  expect_contains(mistakes_of("\xff\xfe\xff"), "a.toml:1:");
  expect_contains(mistakes_of(example + "\x01\n"), "a.toml:11:");
}

TEST(Mistakes, HugeAndDeepDecksAreRejectedQuickly) {
  const auto begin = std::chrono::steady_clock::now();
  expect_contains(mistakes_of(std::string(10 << 20, '#')), "larger than 1 MiB");
  const auto repeated = [](const std::string& part, int times) {
    std::string out;
    for (int i = 0; i < times; ++i) out += part;
    return out;
  };
  constexpr int many = 250000;
  const std::vector<std::string> bombs{
      "x = " + repeated("[", many),
      "x = " + repeated("{a=", many),
      repeated("a.", many) + "a = 1",
      "[" + repeated("a.", many) + "a]",
      "[" + repeated("\"a\" . ", many / 2) + "a]",
      "x = '''\n'''",
      "x = \"\"\"\n\"\"\"",
      "x = " + repeated("[{a.a.a.a = ", 60000),
  };
  for (const std::string& bomb : bombs) EXPECT_FALSE(mistakes_of(bomb).empty());
  const std::string message = mistakes_of(example + repeated("[x]\n", many));
  EXPECT_LT(message.size(), 20000u);
  std::string unknown = "[run]\n";
  for (int i = 0; i < 60000; ++i) unknown += "k" + std::to_string(i) + " = 1\n";
  expect_contains(mistakes_of(unknown), " more");
  // Far more than any of these takes; a quadratic or unbounded pass over a deck would take minutes.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST(Mistakes, MissingFilesAndFoldersAreRejected) {
  const testing::TemporaryFolder folder;
  const auto message = [](const std::string& path) {
    try {
      load_deck(path);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  expect_contains(message(folder.file("none.toml")), "no such deck");
  expect_contains(message(folder.path().string()), "is a folder");
  expect_contains(message(folder.write("empty.toml", "")), "is empty");
  expect_contains(message(folder.write("large.toml", std::string(10 << 20, ' '))),
                  "larger than 1 MiB");
  expect_contains(message(""), "no such deck");
  EXPECT_EQ(load_deck(folder.write("good.toml", example)).config,
            parse_deck(example, "a.toml").config);
}

}  // namespace
}  // namespace trireme::deck
