#include <nlohmann/json.hpp>

#include <gtest/gtest.h>

#include <string>

#include "support/shell.hpp"

/// `trireme plan`, as a user calls it.
namespace trireme::commands {
namespace {

using namespace trireme::testing;

const std::string speeds =
    "[machine]\nname = \"cluster\"\n[device]\nkind = \"cuda\"\nmemory = \"1 GiB\"\n"
    "peak_fp32 = 1e12\nbandwidth = 1e12\n[node]\ndevices = 4\nlink_bandwidth = 100e9\n"
    "[network]\nbandwidth = 50e9\n";

class PlanLayouts : public ::testing::Test {
 protected:
  PlanLayouts() {
    folder_.write("cluster.toml", speeds);
    folder_.write(
        "a.toml",
        "[model]\nlayers = 4\nhidden = 64\nheads = 4\nsequence = 32\nvocabulary = 96\n"
        "[parallel]\npipeline = 2\nschedule = \"zb-h1\"\n[batch]\nglobal = 16\nmicro = 1\n"
        "[data]\ntrain = \"none.h5\"\n");
  }

  int plan(const std::string& more, const std::string& machine = "cluster.toml") {
    return shell(folder_, "trireme plan a.toml --machine " + machine + " " + more);
  }
  std::string err() const { return read_file(folder_.file("err")); }
  nlohmann::json json() const { return nlohmann::json::parse(read_file(folder_.file("p.json"))); }

  TemporaryFolder folder_;
};

TEST_F(PlanLayouts, PrintsOverridesThatCheckAccepts) {
  ASSERT_EQ(plan("--ranks 8 --top 3 --json p.json"), 0) << err();
  expect_output(folder_, "deck          a.toml, 8 ranks of cluster (cluster.toml)\n");
  expect_output(folder_, "\nbest layouts\n");
  expect_output(folder_, "\n  3  parallel.tensor=");
  expect_output(folder_, "\nPareto front of time and memory\n");
  expect_output(folder_, "more stages than layers");
  expect_output(folder_, "deck's layout  data 4 · pipeline 2 · tensor 1, micro 1, zb-h1: ");
  const auto result = json();
  ASSERT_EQ(result["candidates"].size(), 50u);
  for (const std::size_t i : {0u, 20u, 49u}) {
    const auto& c = result["candidates"][i];
    ASSERT_EQ(shell(folder_, "trireme check a.toml --ranks 8 --machine cluster.toml --json - " +
                                 c["overrides"].get<std::string>()),
              0)
        << err();
    const auto checked = nlohmann::json::parse(read_file(folder_.file("out")));
    EXPECT_DOUBLE_EQ(checked["step_seconds"], c["step_seconds"]);
    EXPECT_EQ(checked["memory_bytes"], c["bytes"]);
  }
}

TEST_F(PlanLayouts, JsonHoldsTheCompleteResult) {
  ASSERT_EQ(plan("--ranks 8 --json p.json --memory-limit 100MB"), 0) << err();
  const auto result = json();
  EXPECT_EQ(result["ranks"], 8);
  EXPECT_EQ(result["memory_limit"], 100000000);
  EXPECT_GE(result["evaluated"].get<int>(), 50);
  EXPECT_GT(result["seconds"].get<double>(), 0);
  EXPECT_FALSE(result["rejected"].empty());
  EXPECT_FALSE(result["front"].empty());
  EXPECT_EQ(result["own"]["layout"]["schedule"], "zb-h1");
  double before = 0;
  for (const auto& c : result["candidates"]) {
    EXPECT_GE(c["step_seconds"].get<double>(), before);
    before = c["step_seconds"];
    EXPECT_LE(c["bytes"].get<double>(), 100e6);
    double sum = 0;
    for (const auto& [cause, seconds] : c["seconds_by_cause"].items()) sum += seconds.get<double>();
    EXPECT_NEAR(sum, before, 1e-12 * before);
  }
}

TEST_F(PlanLayouts, KeepsKeysOfTheCommandLine) {
  ASSERT_EQ(plan("--ranks 8 --json p.json parallel.tensor=2 parallel.chunks=2 batch.micro=2"), 0)
      << err();
  expect_output(folder_, "fixed         parallel.tensor, parallel.chunks, batch.micro\n");
  for (const auto& c : json()["candidates"]) {
    EXPECT_EQ(c["layout"]["tensor"], 2);
    EXPECT_EQ(c["layout"]["chunks"], 2);
    EXPECT_EQ(c["layout"]["micro"], 2);
    EXPECT_EQ(c["layout"]["schedule"], "interleaved");
  }
}

TEST_F(PlanLayouts, ExplainsWhyTheDecksLayoutIsUnusable) {
  ASSERT_EQ(plan("--ranks 3 batch.global=18"), 0) << err();
  expect_output(folder_, "deck's layout  cannot be used: [parallel] tensor = 1");
}

TEST_F(PlanLayouts, NamesTheSourceOfItsSpeeds) {
  ASSERT_EQ(shell(folder_, "trireme plan a.toml --ranks 8"), 0) << err();
  expect_output(folder_, "\nspeeds        typical of this kind of device");
  ASSERT_EQ(shell(folder_, "trireme plan a.toml --ranks 8 parallel.machine=cluster.toml"), 0);
  expect_output(folder_, "8 ranks of cluster (cluster.toml)\n");
  EXPECT_EQ(read_file(folder_.file("out")).find("typical"), std::string::npos);
}

TEST_F(PlanLayouts, WritesASelfContainedPage) {
  ASSERT_EQ(plan("--ranks 8 --html p.html"), 0) << err();
  EXPECT_EQ(shell(folder_, "'" TRIREME_PYTHON "' -B '" TRIREME_SOURCE_DIR
                           "/tests/commands/check_page.py' p.html --script"),
            0)
      << read_file(folder_.file("out")) << err();
  const std::string page = read_file(folder_.file("p.html"));
  for (const char* part :
       {"Layouts of a.toml on 8 ranks", "memory of a rank, GiB", "seconds per step, logarithmic",
        "bubble: waiting for other pipeline ranks", "the deck's layout", "Rejected layouts"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
}

TEST_F(PlanLayouts, ReportsBadInputWithARemedy) {
  EXPECT_EQ(plan("--ranks 7"), 2);
  expect_error(folder_, "no layout fits 7 ranks with [batch] global = 16 (a.toml:");
  expect_error(folder_, "start ");
  EXPECT_EQ(plan("--ranks 8 --memory-limit 10kB"), 2);
  expect_error(folder_, "no layout of a.toml fits into ");
  expect_error(folder_, "the smallest needs ");
  EXPECT_EQ(plan("--ranks 8 parallel.tensor=3"), 2);
  expect_error(folder_, "no layout fits 8 ranks");
  expect_error(folder_, "[parallel] tensor = 3 (command line)");
  EXPECT_EQ(plan("--ranks 8 parallel.schedule=1f1b parallel.chunks=2"), 2);
  expect_error(folder_,
               "[parallel] chunks = 2 (command line) applies to the schedules "
               "interleaved, auto and file");
  EXPECT_EQ(plan("--ranks 8 parallel.schedule=file parallel.program=x"), 2);
  expect_error(folder_, "cannot be planned, because a program file has a fixed number of stages");
  folder_.write("small.toml",
                "[machine]\nname = \"small\"\n[device]\nkind = \"cuda\"\nmemory = \"1 GiB\"\n");
  EXPECT_EQ(plan("--ranks 8", "small.toml"), 2);
  expect_error(folder_,
               "small (small.toml) does not give [device] peak_fp32, [device] bandwidth, "
               "[node] devices, [node] link_bandwidth");
  EXPECT_EQ(shell(folder_, "trireme plan a.toml --machine cluster.toml"), 2);
  expect_error(folder_, "--ranks is required");
}

}  // namespace
}  // namespace trireme::commands
