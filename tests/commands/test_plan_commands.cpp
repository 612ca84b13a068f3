#include <trireme/base/text.hpp>
#include <trireme/deck/deck.hpp>
#include <trireme/plan/program.hpp>
#include <trireme/schedule/machine.hpp>

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

TEST(Check, PaperModelsHaveTheirParametersRanksAndBatches) {
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

/// A ramp-up as GPT-3 used: from 96 to 1536 samples by 96 over 100,000 samples.
TEST(Check, ShowsStepsAndProgramsOfARampUp) {
  const TemporaryFolder folder;
  const std::string check =
      "trireme check '" + inputs + "paper/gpt_145.6b.toml' --ranks 768 " +
      "parallel.tensor=8 parallel.pipeline=8 parallel.data=12 batch.global=1536 " +
      "batch.micro=1 run.steps=1000 ";
  ASSERT_EQ(shell(folder, check + "batch.ramp_start=96 batch.ramp_increment=96 "
                                  "batch.ramp_samples=100000"),
            0)
      << read_file(folder.file("err"));
  expect_output(folder,
                "batch         grows from 96 to 1536 samples by 96 over the first 100,000 "
                "samples: 16 sizes, each with its own program\n");
  expect_output(folder, "1              0            96              8\n");
  // The first size ends after 6,667 samples: 70 steps of 96 take 6,720. The second ends after
  // 13,334: 35 more steps of 192 make 13,440.
  expect_output(folder, "71          6,720           192             16\n");
  expect_output(folder, "106         13,440           288             24\n");
  expect_output(folder, "1536            128\n");
  EXPECT_EQ(shell(folder, check + "batch.ramp_start=42 batch.ramp_increment=498 "
                                  "batch.ramp_samples=100000"),
            2);
  expect_error(folder, "[batch] ramp_start = 42 (command line) is not a multiple of [batch] micro");
}

TEST(Check, ChecksATrillionParametersInSeconds) {
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

TEST(Check, RejectsASiteFileAsAMachineFile) {
  const TemporaryFolder folder;
  for (const std::string command : {"check", "plan"}) {
    EXPECT_EQ(
        shell(folder, "trireme " + command + " '" + inputs + "tiny.toml' --ranks 1 --machine '" +
                          TRIREME_SOURCE_DIR "/tools/sites/lumi.toml'"),
        2);
    expect_error(folder, "lumi.toml is a site file, which `trireme-job --site` reads");
  }
}

/// Equal stages alone would be idle for 63/575 of the time. Selene's messages are NCCL's.
TEST(Check, SharedVocabularyIsAsIdleAsEqualStages) {
  const TemporaryFolder folder;
  const std::string selene = " --machine '" + inputs + "machines/selene.toml'";
  for (const std::string& machine : {std::string(), selene}) {
    ASSERT_EQ(shell(folder, "trireme check '" + inputs + "gpt_1t.toml' --ranks 3072" + machine +
                                " parallel.vocabulary=pipeline"),
              0);
    const std::string out = read_file(folder.file("out"));
    const std::size_t end = out.find(" % with each stage's FLOPs");
    ASSERT_NE(end, std::string::npos) << out;
    EXPECT_LE(std::stod(out.substr(out.rfind(", ", end) + 2)), 11.2) << out;
  }
}

TEST(Check, NotesStagesWithoutALayer) {
  const TemporaryFolder folder;
  small_deck(folder);
  ASSERT_EQ(shell(folder, "trireme check a.toml parallel.pipeline=4"), 0);
  expect_output(folder, "note: 2 stages have no layer");
  ASSERT_EQ(shell(folder, "trireme check a.toml parallel.pipeline=2"), 0);
  EXPECT_EQ(read_file(folder.file("out")).find("note:"), std::string::npos);
}

TEST(Check, ReportsAllMistakesAtOnce) {
  const TemporaryFolder folder;
  small_deck(folder);
  EXPECT_EQ(shell(folder,
                  "trireme check a.toml parallel.tensor=5 parallel.pipeline=9999 "
                  "parallel.schedule=interleaved run.stepps=3 parallel.program=x"),
            2);
  for (const char* part : {"choose a tensor of at most 4", "more than 4096",
                           "needs 2 chunks or more", "did you mean steps?", "or leave program out"})
    expect_error(folder, part);
  EXPECT_EQ(read_file(folder.file("out")), "");
}

TEST(Check, ChecksDeepPipelinesInSeconds) {
  const TemporaryFolder folder;
  small_deck(folder);
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_EQ(shell(folder, "trireme check a.toml parallel.pipeline=4096"), 0);
  expect_output(folder, "note: 4094 stages have no layer");
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(seconds.count(), 20.0);
}

TEST(Check, OneProcessPrintsUnderALauncher) {
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

TEST(Check, ReportsTheLineOfAMistakeInAProgram) {
  const TemporaryFolder folder;
  small_deck(folder);
  const std::string check =
      "trireme check a.toml parallel.pipeline=2 batch.global=2 parallel.schedule=file "
      "parallel.program=my.program";
  EXPECT_EQ(shell(folder, check), 2);
  expect_error(folder, "[parallel] program = \"my.program\": no such file; `trireme draw");
  std::filesystem::create_directory(folder.file("my.program"));
  EXPECT_EQ(shell(folder, check), 2);
  expect_error(folder, "is a folder, expected a file");
  std::filesystem::remove(folder.file("my.program"));
  folder.write("my.program", "# two ranks\nF0 F1 B0 B1\nF0 B0 F1 X1\n");
  EXPECT_EQ(shell(folder, check), 2);
  expect_error(folder, "my.program:3:10: `X1`");
  folder.write("my.program", "F0 F1 B0 B1\nF0 B0 F1 B1\n");
  EXPECT_EQ(shell(folder, check), 0) << read_file(folder.file("err"));
  expect_output(folder, "schedule      file my.program, 2 micro-batches");
}

TEST(Draw, WritesTextPicturesTracesAndPrograms) {
  const TemporaryFolder folder;
  small_deck(folder);
  const std::string draw = "trireme draw a.toml parallel.pipeline=2 batch.global=4 ";
  ASSERT_EQ(shell(folder, draw), 0) << read_file(folder.file("err"));
  expect_output(folder, "rank 0 |F0");
  expect_output(folder, "idle ");
  ASSERT_EQ(shell(folder, draw + "-o a.svg"), 0);
  expect_output(folder, "predicted from the FLOPs of each stage");
  EXPECT_EQ(read_file(folder.file("a.svg")).find("<svg"), 0u);
  ASSERT_EQ(shell(folder, draw + "--format trace -o a.txt"), 0);
  EXPECT_NE(read_file(folder.file("a.txt")).find("traceEvents"), std::string::npos);
  EXPECT_EQ(shell(folder, draw + "--format png"), 2);
  EXPECT_EQ(shell(folder, draw + "-o no/such/folder.svg"), 2);
  expect_error(folder, "no/such/folder.svg: cannot be written");
  EXPECT_EQ(shell(folder, "PMI_RANK=1 " + draw + "-o second.svg"), 0);
  EXPECT_FALSE(std::filesystem::exists(folder.file("second.svg"))) << "one process writes";
}

/// The program that draw writes is the same schedule when read back. Its times too, except with
/// gpipe: a program file always has the head's gradient in the forward pass.
TEST(Draw, WritesASchedulesProgramThatReadsBack) {
  const TemporaryFolder folder;
  small_deck(folder);
  const std::string axes = "a.toml parallel.pipeline=2 ";
  for (const std::string schedule :
       {"parallel.schedule=gpipe", "parallel.schedule=1f1b", "parallel.schedule=zb-h1",
        "parallel.schedule=interleaved parallel.chunks=2"}) {
    SCOPED_TRACE(schedule);
    const std::string chunks = schedule.ends_with("2") ? " parallel.chunks=2 " : " ";
    ASSERT_EQ(shell(folder, "trireme draw " + axes + schedule + " --format program -o my.program"),
              0)
        << read_file(folder.file("err"));
    ASSERT_EQ(shell(folder, "trireme draw " + axes + schedule + " | tail -n +2"), 0);
    const std::string drawn = read_file(folder.file("out"));
    EXPECT_GT(drawn.size(), 100u);
    const std::string again =
        "trireme draw " + axes + chunks + "parallel.schedule=file parallel.program=my.program ";
    ASSERT_EQ(shell(folder, again + "--format program -o again.program"), 0);
    EXPECT_EQ(read_file(folder.file("again.program")), read_file(folder.file("my.program")));
    ASSERT_EQ(shell(folder, again + "| tail -n +2"), 0);
    if (!schedule.ends_with("gpipe")) {
      EXPECT_EQ(read_file(folder.file("out")), drawn);
    }
  }
}

TEST(Draw, ShowsAMeasuredTimelineNextToItsPrediction) {
  const TemporaryFolder folder;
  const deck::Config config =
      deck::load_deck(small_deck(folder), {"parallel.pipeline=2", "parallel.data=1"}).config;
  // As if measured: rank 1 pauses 3 s before its first pass, the rest takes unit times.
  auto timeline = schedule::simulate(plan::step_program(config, {}), schedule::unit_cost).timeline;
  for (auto& event : timeline.events)
    if (!(event.rank == 0 && event.instr.op == schedule::Op::forward)) {
      event.begin += 3;
      event.end += 3;
    }
  std::filesystem::create_directories(folder.file("run"));
  folder.write("run/timeline.jsonl", schedule::write_timeline(timeline));
  const std::string draw = "trireme draw a.toml parallel.pipeline=2 ";
  ASSERT_EQ(shell(folder, draw + "-o a.svg"), 0) << read_file(folder.file("err"));
  // 8 micro-batches of 3 s and 3 s of filling and draining: 27 s, of which 24 s are busy. The pause
  // adds 3 s.
  expect_output(folder, "idle 20.0 % measured, 11.1 % predicted");
  ASSERT_EQ(shell(folder, draw + "batch.global=4"), 0);
  expect_error(folder, "was measured with 2 pipeline ranks, 1 chunks and 8 micro-batches");
  EXPECT_EQ(shell(folder, draw + "batch.global=4 --measured run/timeline.jsonl"), 2);
  EXPECT_EQ(shell(folder, draw + "--measured a.toml"), 2);
  EXPECT_EQ(shell(folder, draw + "--measured none.jsonl"), 2);
  expect_error(folder, "none.jsonl: no such file; a run with");
}

}  // namespace
}  // namespace trireme::commands
