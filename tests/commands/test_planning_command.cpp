#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "support/shell.hpp"

/// `trireme check --machine`, as a user on a laptop calls it.
namespace trireme::commands {
namespace {

using namespace trireme::testing;

const std::string machines = TRIREME_SOURCE_DIR "/inputs/machines/";

class CheckMachine : public ::testing::Test {
 protected:
  CheckMachine() {
    folder_.write("a.toml",
                  "[model]\nlayers = 2\nhidden = 32\nheads = 4\nsequence = 16\nvocabulary = 61\n"
                  "[batch]\nglobal = 8\nmicro = 1\n[precision]\ncompute = \"bf16\"\n"
                  "[data]\ntrain = \"none.h5\"\n");
  }

  /// The exit code of `trireme check a.toml --machine MACHINE MORE`.
  int check(const std::string& machine, const std::string& more = "") {
    return shell(folder_, "trireme check a.toml --machine '" + machine + "' " + more);
  }
  std::string out() const { return read_file(folder_.file("out")); }

  TemporaryFolder folder_;
};

TEST_F(CheckMachine, PlansForGpus) {
  ASSERT_EQ(check(machines + "h100.toml", "--ranks 16 batch.global=16 parallel.offload=optimizer"),
            0)
      << read_file(folder_.file("err"));
  expect_output(folder_, "machine       h100 (" + machines +
                             "h100.toml): cuda, 79.6 GiB per rank, 2 nodes of 8 ranks\n"
                             "              products cublaslt, attention cudnn, transport nccl\n");
  expect_output(folder_, "transport     NCCL, between devices\n");
  expect_output(folder_,
                "offload       optimizer: the optimizer's state is in the host's memory\n");
  expect_output(folder_, "  kernel workspace        33.0 MiB\n");
  expect_output(folder_, "  reductions  ");
  expect_output(folder_, "  optimizer state (host)  ");
  expect_output(folder_, "\n  fits: 999 MiB of 79.6 GiB");  // 1 GB of it is the reserve
  EXPECT_EQ(out().find("peak of a rank"), std::string::npos);
}

TEST_F(CheckMachine, PlansForHosts) {
  ASSERT_EQ(check(machines + "host.toml", "--ranks 4 parallel.offload=optimizer"), 0)
      << read_file(folder_.file("err"));
  expect_output(folder_, "host, 55.9 GiB per rank, 1 node of 8 ranks\n");
  expect_output(folder_, "offload       optimizer, which has no effect: the kernels of epyc (");
  expect_output(folder_, "peak of a rank, including its process: ");
  expect_output(folder_, " of 55.9 GiB\n");
  EXPECT_EQ(out().find("kernel workspace"), std::string::npos);
  EXPECT_EQ(out().find("reductions"), std::string::npos);
}

TEST_F(CheckMachine, ReportsAnExcessOfMemoryWithoutAnError) {
  folder_.write("small.toml",
                "[machine]\nname = \"small\"\n[device]\nkind = \"hip\"\nmemory = \"1 MiB\"\n");
  ASSERT_EQ(check("small.toml"), 0) << read_file(folder_.file("err"));
  expect_output(folder_, "machine       small (small.toml): hip, 1.00 MiB per rank\n");
  expect_output(folder_, "\n  does not fit: 13");
  expect_output(folder_, " of 1.00 MiB, ");
  expect_output(folder_, "too much; use more tensor or pipeline ranks");
}

/// Qwen3-30B-A3B without dropped tokens on 16 devices of 80 GB, however uneven the choices are.
TEST_F(CheckMachine, ALargeMixtureOfExpertsFitsIntoTwoNodes) {
  folder_.write("a.toml",
                "[model]\nfamily = \"qwen3_moe\"\nlayers = 48\nhidden = 2048\nheads = 32\n"
                "key_value_heads = 4\nhead_size = 128\nsequence = 4096\nvocabulary = 151936\n"
                "tied_embeddings = false\n"
                "[experts]\nfeed_forward = 768\n[parallel]\nexpert = 8\nshard = \"weights\"\n"
                "recompute = \"full\"\n[batch]\nglobal = 64\nmicro = 1\n"
                "[precision]\ncompute = \"bf16\"\n[data]\ntrain = \"none.h5\"\n");
  const std::string machine = machines + "h100.toml";
  ASSERT_EQ(check(machine, "--ranks 16 --must-fit"), 0) << read_file(folder_.file("err"));
  expect_output(folder_, "parameters    30,532,");
  expect_output(folder_, "262,144 at most, 32,768 on average");
  ASSERT_EQ(check(machine, "--ranks 16 --must-fit optimizer.kind=muon"), 0);
  ASSERT_EQ(check(machine, "--ranks 16 --must-fit experts.rows=1 parallel.recompute=none"), 0);
  ASSERT_EQ(check(machine, "--ranks 16 --must-fit parallel.recompute=none"), 3);
  expect_error(folder_,
               "reduce [batch] micro, or set [experts] rows = 1: a layer's experts have 262,144 "
               "rows at most, 32,768 on average");
}

/// DeepSeek-V3 on 2,048 devices.
TEST_F(CheckMachine, PlansTheLargestExpertsInSeconds) {
  folder_.write(
      "a.toml",
      "[model]\nfamily = \"deepseek_v3\"\nlayers = 61\nhidden = 7168\nheads = 128\n"
      "feed_forward = 18432\nkey_value_rank = 512\nquery_rank = 1536\n"
      "rotary_size = 64\nhead_size = 192\nvalue_size = 128\nsequence = 4096\n"
      "vocabulary = 129280\ntied_embeddings = false\n[experts]\nfeed_forward = 2048\n[parallel]\n"
      "pipeline = 16\nexpert = 64\nshard = \"optimizer\"\nrecompute = \"full\"\n"
      "[batch]\nglobal = 15360\nmicro = 1\n[precision]\ncompute = \"bf16\"\n"
      "[data]\ntrain = \"none.h5\"\n");
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_EQ(check(machines + "h100.toml", "--ranks 2048"), 0) << read_file(folder_.file("err"));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(seconds.count(), 10.0);
  expect_output(folder_, "parameters    671,026,419,200");
  expect_output(folder_, "experts       4 of 256 on each rank: 64 replicas divide them");
}

/// 2 of 16 tokens are masked; 130 of 260 ids are on the first of two tensor ranks.
TEST_F(CheckMachine, LayerPrintsOperationsOfEmbeddingLayerAndHead) {
  ASSERT_EQ(check(machines + "h100.toml",
                  "--layer --ranks 2 parallel.tensor=2 parallel.sequence_parallel=true "
                  "model.family=bert model.vocabulary=260"),
            0)
      << read_file(folder_.file("err"));
  expect_output(folder_,
                "on tensor rank 0 of P = 2 for one micro-batch of B = 1: T = 16 tokens, R = 8 of "
                "them in its residual stream, N = 2 predicted, N' = 2 at a time\n\nembedding\n");
  expect_output(folder_,
                "  embedding              tokens → x    reduce-scatter    all-gather\n"
                "  positions (embedding)  x\n"
                "  segments (embedding)   segments → x\n");
  expect_output(folder_, "\ntensors of layer 0\n  tensor ");
  expect_output(folder_, "\nsteps of layer 0\n  phase ");
  expect_output(folder_, "embedding_dropout (dropout)");
  const std::string text = out();  // other layers have no dropout after their first norm
  EXPECT_EQ(text.find("embedding_dropout", text.find("\ntensors of layer 1\n")), std::string::npos);
  expect_output(folder_, "\nhead\n  tensor ");
  expect_output(folder_,
                "  logits                    [N', V]     scratch  1.02 KiB\n"
                "  dlogits                   [N', V]     scratch     520 B\n");
  expect_output(folder_, "  statistics                [N', 3 P]   scratch      96 B\n");
  EXPECT_NE(out().find("head's rows (pick) "), std::string::npos);
  ASSERT_EQ(check(machines + "h100.toml", "--layer precision.compute=fp32"), 0);
  expect_output(folder_, "\nsteps of a layer\n  phase ");
  EXPECT_EQ(out().find("dlogits"), std::string::npos) << "it is in the memory of the logits";
  EXPECT_EQ(out().find("all-"), std::string::npos) << "one rank sends nothing";
}

TEST_F(CheckMachine, ReportsMistakesOfMachineFileAndDeck) {
  EXPECT_EQ(check("none.toml"), 2);
  expect_error(folder_, "none.toml: no such machine file");
  folder_.write("bad.toml",
                "[machine]\nname = \"bad\"\n[device]\nkind = \"host\"\nmemory = \"1 TB\"\n"
                "[software]\ntransport = \"nccl\"\nproduct = \"onednn\"\n");
  EXPECT_EQ(check("bad.toml"), 2);
  expect_error(folder_, "2 mistakes in bad.toml:");
  expect_error(folder_, "bad.toml:8:1: unknown key product in [software]; did you mean products?");
  expect_error(folder_, "choose transport = \"mpi\"");
  EXPECT_EQ(out(), "");
  folder_.write("amd.toml",
                "[machine]\nname = \"amd\"\n[device]\nkind = \"hip\"\nmemory = \"64 GB\"\n");
  EXPECT_EQ(check("amd.toml", "precision.attention=cudnn"), 2);
  expect_error(folder_,
               "[precision] attention = \"cudnn\" (command line) is not possible: amd "
               "(amd.toml) has no cuDNN");
}

TEST_F(CheckMachine, PredictsStepTimeAndItsParts) {
  const std::string layout =
      "--ranks 16 parallel.tensor=2 parallel.pipeline=2 model.layers=4 batch.global=16 ";
  ASSERT_EQ(check(machines + "h100.toml", layout), 0) << read_file(folder_.file("err"));
  expect_output(folder_, " tokens/s, ");
  expect_output(folder_, " per rank\n  MFU ");
  expect_output(folder_, " of 989.4 TFLOP/s per rank; ");
  for (const char* part : {"\n  compute ", "\n  tensor ", "\n  bubble ", "\n  assumed: products "})
    expect_output(folder_, part);
  EXPECT_EQ(out().find("gathers of weights"), std::string::npos);
  for (const auto& [file, hidden] : {std::pair("h100.toml", "100.0 %"), {"selene.toml", "0.0 %"}}) {
    ASSERT_EQ(check(machines + file, layout + "parallel.shard=optimizer precision.compute=fp16"),
              0);
    expect_output(folder_, ", gathers of weights up to " + std::string(hidden) + " hidden\n");
  }
  ASSERT_EQ(check(machines + "h100.toml", layout + "--json plan.json"), 0);
  const auto plan = nlohmann::json::parse(read_file(folder_.file("plan.json")));
  EXPECT_EQ(plan["machine"], "h100");
  EXPECT_EQ(plan["ranks"], 16);
  EXPECT_EQ(plan["layout"], (nlohmann::json{{"tensor", 2}, {"pipeline", 2}, {"data", 4}}));
  EXPECT_EQ(plan["fits"], true);
  double sum = 0;
  for (const auto& [name, seconds] : plan["shares"].items()) sum += seconds.get<double>();
  EXPECT_EQ(plan["shares"].size(), 7u);
  const double seconds = plan["step_seconds"];
  EXPECT_NEAR(sum, seconds, 1e-9 * seconds);
  EXPECT_NEAR(plan["tokens_per_second"].get<double>(), 16 * 16 / seconds, 1e-6 / seconds);
  EXPECT_EQ(plan["mfu"], plan["hfu"]) << "nothing is computed again";
  ASSERT_EQ(check(machines + "h100.toml", layout + "--json - parallel.recompute=full"), 0);
  const auto again = nlohmann::json::parse(out());
  EXPECT_GT(again["hfu"], again["mfu"]);
  EXPECT_GT(again["step_seconds"], plan["step_seconds"]);
}

TEST_F(CheckMachine, UnwritableFileIsAnError) {
  for (const char* path : {"none/plan.json", "/dev/full"}) {
    EXPECT_EQ(check(machines + "h100.toml", std::string("--json ") + path), 2) << path;
    expect_error(folder_, std::string(path) + ": cannot be written: ");
  }
}

/// Memory is planned all the same.
TEST_F(CheckMachine, PrintsNoTimesWithoutSpeeds) {
  folder_.write("bare.toml",
                "[machine]\nname = \"bare\"\n[device]\nkind = \"cuda\"\nmemory = 80e9\n");
  ASSERT_EQ(check("bare.toml"), 0) << read_file(folder_.file("err"));
  expect_output(folder_, "[device] peak_bf16, [device] bandwidth");
  EXPECT_EQ(out().find("tokens/s"), std::string::npos);
  ASSERT_EQ(check("bare.toml", "--json -"), 0);
  const auto plan = nlohmann::json::parse(out());
  EXPECT_FALSE(plan.contains("step_seconds"));
  EXPECT_FALSE(plan.contains("shares"));
  EXPECT_EQ(plan["fits"], true);
  EXPECT_GT(plan["memory_bytes"], 0);
}

TEST_F(CheckMachine, HelpListsTheKeysOfAMachineFile) {
  ASSERT_EQ(shell(folder_, "trireme help machine"), 0);
  expect_output(folder_, "\n[device]  ");
  expect_output(folder_, "\n  memory  ");
  ASSERT_EQ(shell(folder_, "trireme help machine --markdown"), 0);
  expect_output(folder_, "| `memory` | ");
}

/// Processor time and address space are limited, not the time on a busy machine. The cases take up
/// to a few seconds each.
/// "1.50 KiB", "32 B".
double bytes_in(const std::string& number, const std::string& unit) {
  const std::vector<std::string> units{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  const auto power = std::ranges::find(units, unit) - units.begin();
  return std::stod(number) * std::pow(1024.0, static_cast<double>(power));
}

TEST_F(CheckMachine, RowsOfTheMemoryTableSumToTheTotal) {
  for (const char* layout :
       {"parallel.pipeline=4 parallel.schedule=2bw", "parallel.pipeline=4 parallel.schedule=zb-v",
        "parallel.pipeline=8", "parallel.pipeline=4 parallel.vocabulary=pipeline"}) {
    const std::string deck = "'" TRIREME_SOURCE_DIR "/inputs/tiny.toml' --ranks 8 ";
    ASSERT_EQ(shell(folder_, "trireme check " + deck + "batch.global=192 batch.micro=1 " + layout),
              0);
    std::istringstream lines(read_file(folder_.file("out")));
    std::string line;
    while (std::getline(lines, line) && line != "memory per rank") {
    }
    std::getline(lines, line);  // "most, rank 0  least, rank 2"
    ASSERT_NE(line.find("least"), std::string::npos) << layout;
    std::array<double, 2> sums{};
    for (bool at_sum = false; !at_sum && std::getline(lines, line);) {
      std::istringstream all(line);
      const std::vector<std::string> row{std::istream_iterator<std::string>(all), {}};
      at_sum = row.front() == "sum";
      ASSERT_GE(row.size(), 5u) << line;
      for (std::size_t column = 0; column < 2; ++column) {
        const std::size_t at = row.size() - 4 + 2 * column;
        const double bytes = bytes_in(row[at], row[at + 1]);
        if (at_sum)
          EXPECT_NEAR(sums[column] / bytes, 1, 0.02) << layout << ", column " << column;
        else
          sums[column] += bytes;
      }
    }
  }
}

TEST_F(CheckMachine, UsesLittleMemoryForTheLargestDecks) {
  // 512 MiB of address space besides the 110 MB of the programs' libraries, which have large
  // tables.
  const std::string limits =
      "ulimit -t 60; ulimit -v 635000; trireme check " TRIREME_SOURCE_DIR "/inputs/";
  const std::string whole = "gpt_1t.toml parallel.tensor=1 parallel.pipeline=1 parallel.data=0 ";
  const std::string shared = whole + "parallel.shard=optimizer checkpoint.every=5 ";
  for (const std::string& deck :
       {whole + "--ranks 3072", whole + "--ranks 16384 batch.global=16384", shared + "--ranks 3072",
        shared + "--ranks 1048576 batch.global=1048576",
        shared + "--ranks 1048576 batch.global=1048576 parallel.bucket_bytes=1",
        shared + "--machine " + machines + "h100.toml --ranks 3072 parallel.bucket_bytes=1",
        std::string("gpt2_124m.toml --ranks 4 model.layers=65536"),
        std::string("gpt2_124m.toml --ranks 8 model.layers=4096 parallel.layout=auto"),
        std::string("gpt2_124m.toml --ranks 4096 parallel.pipeline=4096 batch.global=128 "
                    "batch.micro=1")}) {
    EXPECT_EQ(shell(folder_, limits + deck), 0) << deck << "\n" << read_file(folder_.file("err"));
  }
  EXPECT_EQ(shell(folder_, limits + "gpt2_124m.toml --ranks 4096 parallel.pipeline=4096 "
                                    "batch.global=512 batch.micro=1"),
            2);
  expect_error(folder_, "forward passes in a step, more than 524288");
}

TEST_F(CheckMachine, AllCommandsShareTheLargestRankCount) {
  const std::string deck = "'" TRIREME_SOURCE_DIR "/inputs/gpt2_124m.toml'";
  EXPECT_EQ(shell(folder_, "trireme check " + deck + " --ranks 1048576 batch.global=4194304"), 0)
      << read_file(folder_.file("err"));
  for (const char* command : {"check", "plan", "draw"}) {
    EXPECT_EQ(shell(folder_, std::string("trireme ") + command + " --ranks 1048577 " + deck), 2);
    expect_error(folder_, "1048576");
  }
  for (const char* axis : {"tensor", "pipeline", "data"}) {
    EXPECT_EQ(shell(folder_, "trireme check " + deck + " parallel." + axis + "=1048577"), 2);
    expect_error(folder_, "1048576");
  }
}

}  // namespace
}  // namespace trireme::commands
