#include <trireme/base/text.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "support/shell.hpp"

namespace trireme::commands {
namespace {

using testing::expect_error;
using testing::expect_output;
using testing::read_file;
using testing::shell;
using testing::TemporaryFolder;

const std::string inputs = TRIREME_SOURCE_DIR "/inputs/";

/// A deck of 2 layers without token file.
std::string small_deck(const TemporaryFolder& folder) {
  return folder.write(
      "a.toml",
      "[model]\nlayers = 2\nhidden = 32\nheads = 4\nsequence = 16\nvocabulary = 61\n"
      "[batch]\nglobal = 8\nmicro = 1\n[data]\ntrain = \"none.h5\"\n");
}

struct PaperModel {
  const char* name;
  const char* billions;    ///< as Table 1 prints them
  const char* parameters;  ///< 12 L h² (1 + 13 / 12 h) + (V + s + 2) h
  int ranks, tensor, pipeline, data, global;
};

/// Table 1 of Narayanan et al. 2021: sequence 2048, vocabulary 51200.
const std::vector<PaperModel> table_1{
    {"1.7b", "1.7", "1,652,230,656", 32, 1, 1, 32, 512},
    {"3.6b", "3.6", "3,562,168,320", 64, 2, 1, 32, 512},
    {"7.5b", "7.5", "7,467,786,240", 128, 4, 1, 32, 512},
    {"18.4b", "18.4", "18,449,756,160", 256, 8, 1, 32, 1024},
    {"39.1b", "39.1", "39,096,041,472", 512, 8, 2, 32, 1536},
    {"76.1b", "76.1", "76,050,739,200", 1024, 8, 4, 32, 1792},
    {"145.6b", "145.6", "145,622,261,760", 1536, 8, 8, 24, 2304},
    {"310.1b", "310.1", "310,130,540,544", 1920, 8, 16, 15, 2160},
    {"529.6b", "529.6", "529,600,819,200", 2520, 8, 35, 9, 2520},
    {"1t", "1008.0", "1,008,038,758,400", 3072, 8, 64, 6, 3072},
};

TEST(Check, ModelsOfThePaperHaveItsParametersRanksAndBatches) {
  const TemporaryFolder folder;
  int decks = 0;
  for (const auto& entry : std::filesystem::directory_iterator(inputs + "paper")) {
    EXPECT_EQ(entry.path().extension(), ".toml");
    ++decks;
  }
  EXPECT_EQ(decks, 10);
  for (const PaperModel& m : table_1) {
    SCOPED_TRACE(m.name);
    ASSERT_EQ(shell(folder, text("trireme check '", inputs, "paper/gpt_", m.name, ".toml' --ranks ",
                                 m.ranks)),
              0)
        << read_file(folder.file("err"));
    expect_output(folder, text("parameters    ", m.parameters, "\n"));
    expect_output(folder, text("ranks         ", m.ranks, " = data ", m.data, " · pipeline ",
                               m.pipeline, " · tensor ", m.tensor, "\n"));
    expect_output(folder, text("step          ", m.global, " samples, "));
    std::string digits(m.parameters);
    std::erase(digits, ',');
    EXPECT_EQ(fixed(std::stod(digits) / 1e9, 1), m.billions);
  }
}

TEST(Check, ATrillionParametersOn3072RanksTakeSeconds) {
  const TemporaryFolder folder;
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_EQ(shell(folder, "trireme check '" + inputs + "gpt_1t.toml' --ranks 3072"), 0);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(seconds.count(), 5.0);
  expect_output(folder, "1 … 62");
  const std::string again = "trireme check --resolved '" + inputs;
  ASSERT_EQ(shell(folder, again + "gpt_1t.toml'"), 0);
  const std::string resolved = read_file(folder.file("out"));
  ASSERT_EQ(shell(folder, again + "paper/gpt_1t.toml'"), 0);
  EXPECT_EQ(read_file(folder.file("out")), resolved) << "two names of one deck";
}

TEST(Check, StagesWithoutALayerAreNoted) {
  const TemporaryFolder folder;
  small_deck(folder);
  ASSERT_EQ(shell(folder, "trireme check a.toml parallel.pipeline=4"), 0);
  expect_output(folder, "note: 2 stages have no layer");
  ASSERT_EQ(shell(folder, "trireme check a.toml parallel.pipeline=2"), 0);
  EXPECT_EQ(read_file(folder.file("out")).find("note:"), std::string::npos);
}

TEST(Check, AllMistakesAreReportedAtOnce) {
  const TemporaryFolder folder;
  small_deck(folder);
  EXPECT_EQ(shell(folder,
                  "trireme check a.toml parallel.tensor=5 parallel.pipeline=9999 "
                  "parallel.schedule=interleaved run.stepps=3 parallel.program=x"),
            2);
  for (const char* part : {"choose a tensor of at most 4", "more than 4096", "to be 2 or more",
                           "did you mean steps?", "or leave program out"})
    expect_error(folder, part);
  EXPECT_EQ(read_file(folder.file("out")), "");
}

TEST(Check, UnderALauncherOneProcessSpeaks) {
  const TemporaryFolder folder;
  small_deck(folder);
  for (const char* name :
       {"PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PALS_RANKID", "SLURM_PROCID"}) {
    SCOPED_TRACE(name);
    EXPECT_EQ(shell(folder, text(name, "=1 trireme check a.toml run.steps=0")), 2);
    EXPECT_EQ(read_file(folder.file("err")), "");
    EXPECT_EQ(shell(folder, text(name, "=12 trireme check a.toml")), 0);
    EXPECT_EQ(shell(folder, text(name, "=3 trireme help deck")), 0);
    EXPECT_EQ(read_file(folder.file("out")), "");
    EXPECT_EQ(shell(folder, text(name, "=0 trireme check a.toml")), 0);
    expect_output(folder, "no mistakes");
  }
  shell(folder, "'" TRIREME_MPIEXEC "' -n 3 trireme check a.toml run.steps=0");
  const std::string errors = read_file(folder.file("err"));
  const std::size_t first = errors.find("trireme: error: ");
  ASSERT_NE(first, std::string::npos) << errors;
  EXPECT_EQ(errors.find("trireme: error: ", first + 1), std::string::npos) << errors;
}

}  // namespace
}  // namespace trireme::commands
