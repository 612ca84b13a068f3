#include <gtest/gtest.h>

#include <trireme/base/bf16_instructions.hpp>
#include <trireme/plan/machine_file.hpp>

#include <commands/engine_commands.hpp>
#include <support/shell.hpp>

#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <ostream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace trireme::commands {
namespace {

using namespace trireme::testing;
using Json = nlohmann::json;

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

TEST_F(BenchCommand, PrintsRowsAndWritesThemAsJson) {
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
    expect_output(folder_, "== " + std::string(row["section"]));
    if (row["section"] != "matmul") expect_output(folder_, "  " + name + " ");
    // Slowing is a difference of noisy times and may be negative.
    if (name != "slowed_seconds" && name != "delay_share") {
      EXPECT_GT(row["quantity"], 0) << row;
    }
    EXPECT_FALSE(std::string(row["unit"]).empty()) << row;
    EXPECT_FALSE(std::string(row["convention"]).empty()) << row;
  }
  EXPECT_EQ(sections, (std::set<std::string>{"matmul", "checkpoint", "background"}));
  // Embeddings 257 · 16 and 32 · 16; per layer 12 · 16² and 13 · 16; the last norm: weights and two
  // moments per parameter, all in fp32.
  const std::int64_t parameters = (257 + 32) * 16 + 2 * (12 * 256 + 13 * 16) + 2 * 16;
  EXPECT_EQ(quantity(json["rows"], "checkpoint", "bytes"), 3 * 4 * parameters);
  EXPECT_FALSE(exists("run")) << "a bench leaves nothing";
}

/// Names of a section's rows that end in `ending`, with that ending removed.
std::set<std::string> names_of(const Json& rows, const std::string& section,
                               const std::string& ending) {
  std::set<std::string> names;
  for (const auto& row : rows) {
    const std::string name = row["name"];
    if (row["section"] == section && name.ends_with(ending))
      names.insert(name.substr(0, name.size() - ending.size()));
  }
  return names;
}

/// All quantities are positive. Rates and shares stay below what caches can deliver, and below what
/// a disturbed measurement of the peak yields.
void expect_physical(const Json& rows) {
  constexpr double fastest = 1e5;    // GB/s or GFLOP/s of all these ranks
  constexpr double most_share = 50;  // a disturbed measurement of the peak
  for (const auto& row : rows) {
    const std::string name = row["name"];
    const double quantity = row["quantity"];
    ASSERT_TRUE(std::isfinite(quantity)) << row;
    if (name.ends_with(".alpha") || name.ends_with(".calls"))
      EXPECT_GE(quantity, 0) << row;
    else
      EXPECT_GT(quantity, 0) << row;
    if (name.ends_with(".share")) {
      EXPECT_EQ(row["unit"], "1") << row;
      EXPECT_LT(quantity, most_share) << row;
    } else if (row["unit"] == "GB/s" || row["unit"] == "GFLOP/s") {
      EXPECT_LT(quantity, fastest) << row;
    } else if (row["unit"] == "s") {
      EXPECT_LT(quantity, 60) << row;
    }
  }
}

const std::string of_processor = "--only bandwidth,matmul,kernels --rounds 1 ";

/// The bench then assumes usual caches, and measures memory with 256 MiB. Large caches take several
/// times as much.
const std::string unknown_caches = "export LD_PRELOAD=" TRIREME_FAILING_CALLS
                                   " FAULT_CALL=fopen FAULT_PATH=/sys/devices/system/cpu/cpu0/cache"
                                   " FAULT_TIMES=0 FAULT_ERRNO=2; ";

struct FamilyCase {
  std::string overrides;
  int ranks;
  std::set<std::string> kernels;
  std::set<std::string> products;  ///< except those of attention and the logits
  std::map<std::string, double> calls = {};
};

void PrintTo(const FamilyCase& c, std::ostream* out) {
  *out << c.overrides << " on " << c.ranks << " ranks";
}

class BenchFamilies : public BenchCommand, public ::testing::WithParamInterface<FamilyCase> {};

std::set<std::string> passes_of(std::set<std::string> products) {
  products.insert({"attention.query", "attention.output", "feed_forward.down", "logits"});
  std::set<std::string> names;
  for (const std::string& product : products)
    for (const char* pass : {".forward", ".backward_input", ".backward_weight"})
      names.insert(product + pass);
  return names;
}

const std::set<std::string> kernels_of_all{
    "residual_dropout.forward", "dropout.backward",       "attention.forward",
    "attention.backward",       "embedding.forward",      "embedding.backward",
    "cross_entropy.statistics", "cross_entropy.gradient", "gradient.zero",
    "gradient.norm_blocks"};

std::set<std::string> with(std::set<std::string> names, const std::set<std::string>& more) {
  names.insert(more.begin(), more.end());
  return names;
}

const std::set<std::string> layer_norm_and_gelu{
    "residual_layer_norm.forward", "layer_norm.forward", "layer_norm.backward_input",
    "layer_norm.backward_weight",  "gelu.forward",       "gelu.backward",
    "positions.forward",           "positions.backward"};

TEST_P(BenchFamilies, HaveARowForEachKernelAndProduct) {
  const FamilyCase& c = GetParam();
  ASSERT_EQ(run(unknown_caches + mpiexec(c.ranks) + "trireme bench deck.toml " + of_processor +
                "--json bench.json " + c.overrides),
            0)
      << err();
  const Json rows = Json::parse(file("bench.json"))["rows"];
  expect_physical(rows);
  const bool by_amx =
      c.overrides.find("bf16") != std::string::npos && bf16_instructions() == Bf16Instructions::amx;
  const std::set<std::string> beside{"attention_portable.forward", "attention_portable.backward"};
  EXPECT_EQ(names_of(rows, "kernels", ".share"),
            with(with(kernels_of_all, c.kernels), by_amx ? beside : std::set<std::string>{}));
  EXPECT_EQ(names_of(rows, "matmul", ".share"), passes_of(c.products));
  for (const auto& [name, calls] : c.calls)
    EXPECT_EQ(quantity(rows, "kernels", name + ".calls"), calls) << name;
  for (const auto& name : with(kernels_of_all, c.kernels))
    expect_output(folder_, "  " + name + " ");
  // rate = share × attainable, up to the rounding of doubles.
  for (const auto& name : names_of(rows, "kernels", ".share"))
    EXPECT_NEAR(quantity(rows, "kernels", name + ".share") *
                    quantity(rows, "kernels", name + ".attainable"),
                quantity(rows, "kernels", name + ".rate"),
                1e-9 * quantity(rows, "kernels", name + ".rate"));
  EXPECT_FALSE(exists("run")) << "these sections write nothing";
}

INSTANTIATE_TEST_SUITE_P(
    All, BenchFamilies,
    ::testing::Values(
        // 2 layers, 4 micro-batches of one sample; the last norm once each.
        FamilyCase{"model.dropout=0.1",
                   1,
                   with(layer_norm_and_gelu, {"adamw.update"}),
                   {"feed_forward.up"},
                   {{"layer_norm.forward", 8 + 4},
                    {"layer_norm.backward_input", 16 + 4},
                    {"layer_norm.backward_weight", 16 + 4},
                    {"residual_layer_norm.forward", 8},
                    {"residual_dropout.forward", 8},
                    {"dropout.backward", 16},
                    {"attention.forward", 8},
                    {"gelu.forward", 8},
                    {"gelu.backward", 8}}},
        // The first stage has no head, the last one no embedding; odd sizes; fp64.
        FamilyCase{"parallel.pipeline=2 precision.compute=fp64 optimizer.kind=lamb "
                   "model.hidden=18 model.sequence=31 model.vocabulary=259",
                   2,
                   with(layer_norm_and_gelu, {"lamb.direction", "lamb.update"}),
                   {"feed_forward.up"}},
        // One tensor rank has two heads of attention, the other one.
        FamilyCase{"model.heads=3 model.hidden=18 parallel.tensor=2 precision.compute=bf16 "
                   "optimizer.kind=sgd parallel.sequence_parallel=true parallel.recompute=full",
                   2,
                   with(layer_norm_and_gelu, {"sgd.update", "weights.round", "weights.widen"}),
                   {"feed_forward.up"},
                   {{"layer_norm.forward", 16 + 4},
                    {"residual_layer_norm.forward", 16},
                    {"residual_dropout.forward", 8},
                    {"attention.forward", 16},
                    {"attention.backward", 8},
                    {"gelu.forward", 16}}},
        FamilyCase{
            "model.family=llama model.tied_embeddings=false parallel.tensor=2 "
            "parallel.pipeline=2 precision.compute=fp16",
            4,
            {"residual_rms_norm.forward", "rms_norm.forward", "rms_norm.backward_input",
             "rms_norm.backward_weight", "swiglu.forward", "swiglu.backward", "rotary.forward",
             "rotary.backward", "adamw.update", "weights.round", "weights.widen"},
            {"feed_forward.gate_up"}},
        // Layer 0 is dense, layer 1 has experts.
        FamilyCase{
            "model.family=mixtral experts.number=4 experts.first_layer=1 experts.feed_forward=20 "
            "parallel.tensor=2 parallel.sequence_parallel=true",
            2,
            {"residual_rms_norm.forward",
             "rms_norm.forward",
             "rms_norm.backward_input",
             "rms_norm.backward_weight",
             "swiglu.forward",
             "swiglu.backward",
             "rotary.forward",
             "rotary.backward",
             "adamw.update",
             "router.forward",
             "router.backward_input",
             "router.backward_weight",
             "accumulate",
             "choice.forward",
             "choice.backward",
             "experts.gate_up.forward",
             "experts.gate_up.backward_input",
             "experts.gate_up.backward_weight",
             "experts.activation.forward",
             "experts.activation.backward",
             "experts.down.forward",
             "experts.down.backward_input",
             "experts.down.backward_weight"},
            {"feed_forward.gate_up"},
            {{"experts.down.forward", 4}, {"swiglu.forward", 4}}},
        // 2 replicas divide the experts of layer 1; 2 micro-batches on each of them.
        FamilyCase{"model.family=mixtral experts.number=5 experts.feed_forward=20 experts.rows=0.7 "
                   "experts.first_layer=1 parallel.expert=2 parallel.data=2",
                   2,
                   {"residual_rms_norm.forward",
                    "rms_norm.forward",
                    "rms_norm.backward_input",
                    "rms_norm.backward_weight",
                    "swiglu.forward",
                    "swiglu.backward",
                    "rotary.forward",
                    "rotary.backward",
                    "adamw.update",
                    "router.forward",
                    "router.backward_input",
                    "router.backward_weight",
                    "accumulate",
                    "choice.forward",
                    "choice.backward",
                    "experts.dispatch.forward",
                    "experts.dispatch.backward",
                    "experts.rounds.forward",
                    "experts.rounds.backward",
                    "experts.combine.forward",
                    "experts.combine.backward"},
                   {"feed_forward.gate_up"},
                   {{"choice.forward", 2}, {"experts.rounds.backward", 2}}},
        FamilyCase{"model.family=qwen3 model.window=9",
                   1,
                   {"residual_rms_norm.forward", "rms_norm.forward", "rms_norm.backward_input",
                    "rms_norm.backward_weight", "swiglu.forward", "swiglu.backward",
                    "rotary.forward", "rotary.backward", "head_norm.forward",
                    "head_norm.backward_input", "head_norm.backward_weight", "adamw.update"},
                   {"feed_forward.gate_up"},
                   {{"head_norm.forward", 8}, {"head_norm.backward_weight", 8}}},
        // 2 micro-batches on each replica.
        FamilyCase{
            "model.family=bert model.vocabulary=260 parallel.shard=optimizer",
            2,
            with(layer_norm_and_gelu, {"segments.forward", "segments.backward", "rows.pick",
                                       "rows.place", "accumulate", "adamw.update"}),
            {"feed_forward.up", "masked_head.dense", "sentence_head.dense", "sentence_head.output"},
            {{"accumulate", 8}, {"layer_norm.forward", 4 + 2}, {"dropout.backward", 8}}}));

TEST_F(BenchCommand, MeasuresMessagesOfAllRanksAndOfEachAxis) {
  ASSERT_EQ(run(mpiexec(4) + "trireme bench deck.toml --only communication --rounds 1 "
                             "--json bench.json parallel.tensor=2 parallel.pipeline=2"),
            0)
      << err();
  const Json rows = Json::parse(file("bench.json"))["rows"];
  expect_physical(rows);
  std::set<std::string> expected;
  for (const std::string axis : {"world", "tensor", "pipeline"})  // data has one rank
    for (const std::string operation :
         {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "send_receive"})
      expected.insert(axis + "." + operation);
  EXPECT_EQ(names_of(rows, "communication", ".alpha"), expected);
  EXPECT_EQ(names_of(rows, "communication", ".beta"), expected);
  for (const auto& name : expected)
    for (std::int64_t bytes = 4096; bytes <= 64 << 20; bytes *= 4) {
      const std::string size = name + ".bytes_" + std::to_string(bytes);
      const double seconds = quantity(rows, "communication", size + ".seconds");
      const double ranks = name.starts_with("world") ? 4 : 2;
      const double factor = name.ends_with("all_reduce") ? 2 * (ranks - 1) / ranks
                            : name.ends_with("scatter") || name.ends_with("all_gather")
                                ? (ranks - 1) / ranks
                                : 1;
      const double bus = static_cast<double>(bytes) * factor / seconds / 1e9;
      EXPECT_NEAR(quantity(rows, "communication", size + ".bus"), bus, 1e-9 * bus) << size;
    }
}

TEST_F(BenchCommand, MeasuresNoMessagesOnOneRank) {
  ASSERT_EQ(run("trireme bench deck.toml --only communication --json bench.json"), 0) << err();
  expect_output(folder_, "one rank: nothing to measure");
  EXPECT_EQ(Json::parse(file("bench.json"))["rows"].size(), 0U);
}

/// Tries three times, because other jobs may disturb a measurement.
TEST_F(BenchCommand, MemoryIsSlowerThanCaches) {
  double memory = 0;
  double caches = 0;
  for (int attempt = 0; attempt < 3 && memory >= caches; ++attempt) {
    ASSERT_EQ(run("trireme bench deck.toml --only bandwidth --rounds 3 --json bench.json"), 0)
        << err();
    const Json rows = Json::parse(file("bench.json"))["rows"];
    expect_physical(rows);
    memory = quantity(rows, "bandwidth", "far.all_ranks");
    caches = quantity(rows, "bandwidth", "near.all_ranks");
    EXPECT_GT(names_of(rows, "bandwidth", ".slowest_rank").size(), 6U);
  }
  EXPECT_LT(memory, caches);
}

TEST_F(BenchCommand, MachineFilesReadBackAndPredictTimes) {
  for (const int ranks : {1, 2}) {
    const std::string launcher = ranks == 1 ? "" : mpiexec(ranks);
    ASSERT_EQ(run(unknown_caches + launcher +
                  "trireme bench deck.toml --rounds 1 --machine-file machine.toml parallel.data=" +
                  std::to_string(ranks)),
              0)
        << err();
    expect_output(folder_, "machine file machine.toml");
    const plan::Machine machine = plan::parse_machine(file("machine.toml"), "machine.toml");
    EXPECT_EQ(machine.node.devices, ranks);
    EXPECT_EQ(machine.time_mistake({}, ranks), "");
    EXPECT_GT(machine.peak(DType::bf16), 0);
    EXPECT_GT(machine.device.peak_fp8, 0);
    EXPECT_EQ(machine.node.link_bandwidth > 0, ranks > 1);
    EXPECT_LE(machine.node.processors, ranks);
    for (const double rate : {machine.kernels.norm, machine.kernels.activation,
                              machine.kernels.residual, machine.kernels.update})
      EXPECT_GT(rate, 0);
    std::istringstream lines(file("machine.toml"));
    for (std::string line; std::getline(lines, line);) {
      const bool measured =
          line.starts_with("peak") || line.starts_with("link") || line.starts_with("norm");
      EXPECT_TRUE(!measured || line.find("  # ") != std::string::npos) << line;
    }
    EXPECT_EQ(
        run("trireme check deck.toml --machine machine.toml --ranks " + std::to_string(ranks)), 0)
        << err();
  }
}

TEST_F(BenchCommand, RejectsAMissingFolderBeforeMeasuring) {
  EXPECT_EQ(run("trireme bench deck.toml --machine-file nowhere/machine.toml"), 2);
  expect_error(folder_, "nowhere/machine.toml");
}

TEST_F(BenchCommand, KeepsCheckpointsOfTheRun) {
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

TEST_F(BenchCommand, MistakesGiveOneErrorAndLeaveNoFiles) {
  const auto expect_one_error = [&](const std::string& line, int code,
                                    const std::vector<std::string>& words) {
    EXPECT_EQ(run(mpiexec(2) + "trireme bench deck.toml --rounds 1 " + line), code) << err();
    for (const auto& word : words) expect_error(folder_, word);
    const std::string all = err();
    EXPECT_EQ(all.find("trireme: error:"), all.rfind("trireme: error:")) << all;
    EXPECT_FALSE(exists("run")) << line;
  };
  expect_one_error("--only chekpoint", 2,
                   {"chekpoint", "bandwidth, matmul, kernels, communication, checkpoint"});
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
