#include <commands/training_runs.hpp>
#include <support/small_disk.hpp>

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace trireme::commands {
namespace {

using namespace commands::testing;
namespace fs = std::filesystem;

/// Jobs whose ranks are each on a node of its own: a name from the environment, and a folder.
class LocalCheckpoints : public TrainingRuns {
 protected:
  static std::string on_nodes(const std::vector<int>& nodes, const std::string& arguments) {
    std::string names;
    for (const int node : nodes) names += " node" + std::to_string(node);
    return std::string(TRIREME_MPIEXEC) + " -n " + std::to_string(nodes.size()) +
           " sh -c 'shift ${PMI_RANK:-$OMPI_COMM_WORLD_RANK}; TRIREME_NODE_NAME=$1 exec trireme "
           "train deck.toml checkpoint.local=disk/%node% checkpoint.local_every=2 "
           "checkpoint.every=5 checkpoint.restart=latest " +
           arguments + "' sh" + names;
  }

  /// A run that ends at step 10 with the shared checkpoint of step 5 and the local ones of steps 6
  /// and 8, or 4 and 6 if that of step 8 was being written.
  void interrupt(const std::vector<int>& nodes,
                 const std::string& arguments = "checkpoint.asynchronous=false") {
    fs::create_directories(folder_.file("run/checkpoints"));
    folder_.write("run/checkpoints/step_00000010.partial", "in the way");
    EXPECT_EQ(run(on_nodes(nodes, arguments)), 1) << err();
    fs::remove(folder_.file("run/checkpoints/step_00000010.partial"));
    EXPECT_EQ(saved_steps("run/checkpoints"), std::vector<std::int64_t>{5});
    const bool waited = arguments == "checkpoint.asynchronous=false";
    for (const int node : nodes) {
      const auto steps = saved_steps(local(node));
      if (waited || newest_step(local(node)) == 8)
        EXPECT_EQ(steps, (std::vector<std::int64_t>{6, 8})) << node;
      else
        EXPECT_EQ(steps, (std::vector<std::int64_t>{4, 6})) << node;
    }
  }

  /// The folder of the run's local checkpoints on a node; "" if there is none.
  std::string local(int node) const {
    const std::string disk = "disk/node" + std::to_string(node);
    for (const std::string& name : names(disk, ""))
      if (name.starts_with("trireme-") && name != other_run) return disk + "/" + name;
    return "";
  }

  void flip(int node, int step, const std::string& name) const {
    const std::string path = folder_.file(local(node) + "/" + folder_name(step) + "/" + name);
    std::string bytes = read_file(path);
    ASSERT_GT(bytes.size(), 8192u);
    bytes[bytes.size() - 64] ^= 1;  // in the numbers
    std::ofstream(path, std::ios::binary) << bytes;
  }

  void keep_state() { ASSERT_EQ(run("mkdir kept && mv run disk kept"), 0); }
  void bring_back() { ASSERT_EQ(run("rm -rf run disk && cp -a kept/run kept/disk ."), 0); }

  void expect_reference(const std::string& what, int restored) {
    EXPECT_EQ(last_job().restored, restored) << what << out() << err();
    for (const char* key : {"step", "loss", "gradient_norm"})
      EXPECT_EQ(metrics("run", key), metrics("reference", key)) << what;
    expect_equal_checkpoints("run/checkpoints", "reference/checkpoints");
  }

  static constexpr const char* other_run = "trireme-0123456789abcdef-1";
};

TEST_F(LocalCheckpoints, IgnoreTheAbandonedBranchAfterARollBack) {
  const std::string intervals = "checkpoint.asynchronous=false checkpoint.every=3";
  fs::create_directories(folder_.file("run/checkpoints"));
  folder_.write("run/checkpoints/step_00000009.partial", "in the way");
  EXPECT_EQ(run(on_nodes({0, 1}, intervals)), 1) << err();
  fs::remove(folder_.file("run/checkpoints/step_00000009.partial"));
  EXPECT_EQ(saved_steps("run/checkpoints"), (std::vector<std::int64_t>{3, 6}));
  EXPECT_EQ(newest_step(local(0)), 8);
  keep_state();
  for (const std::int64_t named : {6, 3}) {
    bring_back();
    folder_.write("run/checkpoints/latest", folder_name(named) + "\n");
    EXPECT_EQ(run(on_nodes({0, 1}, intervals)), 0) << err();
    EXPECT_EQ(last_job().restored, named == 6 ? 8 : 3);
    const auto warnings = recorded_warnings(folder_, "run");
    EXPECT_EQ(std::ranges::count_if(warnings,
                                    [](const std::string& w) {
                                      return w.find("names an earlier checkpoint") !=
                                             std::string::npos;
                                    }),
              named == 6 ? 0 : 2)
        << "one of each local checkpoint";
  }
}

TEST_F(LocalCheckpoints, OneLostNodeCostsNothingAndLostPartnersFallBack) {
  ASSERT_EQ(run(train(4, "run.directory=reference")), 0) << err();
  ASSERT_EQ(run(std::string("mkdir -p disk/node0/") + other_run + "/step_00000011"), 0);
  interrupt({0, 1, 2, 3});
  for (const int node : {0, 1, 2, 3}) {
    const auto shards = names(local(node) + "/step_00000008", ".h5");
    std::vector<std::string> wanted{"shard_00000" + std::to_string(node) + ".h5",
                                    "shard_00000" + std::to_string((node + 2) % 4) + ".h5"};
    std::ranges::sort(wanted);
    EXPECT_EQ(shards, wanted) << "its own and its partner's";
  }
  keep_state();
  struct Case {
    const char* what;
    std::set<int> lost;
    std::vector<std::pair<int, int>> damaged;  ///< node, shard of step 8
    int restored;
    const char* warning;  ///< "": none
    bool only_soak = false;
  };
  const std::vector<Case> cases{
      {"nothing is lost", {}, {}, 8, "", true},
      {"a node is lost", {1}, {}, 8, "", true},
      {"two nodes that are not partners are lost", {0, 1}, {}, 8, ""},
      {"partners are lost", {0, 2}, {}, 5, "2 of 4 shards"},
      {"an original is damaged", {}, {{0, 0}}, 8, "another node's copy is used"},
      {"an original is damaged, and its copy lost", {2}, {{0, 0}}, 6, "is damaged in block", true},
      {"an original and its copy are damaged", {}, {{3, 3}, {1, 3}}, 6, "is damaged in block"}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    if (c.only_soak && !soak()) continue;
    bring_back();
    for (const auto& [node, shard] : c.damaged)
      flip(node, 8, "shard_00000" + std::to_string(shard) + ".h5");
    for (const int node : c.lost) fs::remove_all(folder_.file(local(node)));
    ASSERT_EQ(run(on_nodes({0, 1, 2, 3}, "")), 0) << err();
    const std::string warnings = err();
    expect_reference(c.what, c.restored);
    EXPECT_EQ(occurrences(warnings, "warning") > 0, *c.warning != '\0') << warnings;
    EXPECT_NE(warnings.find(c.warning), std::string::npos) << warnings;
    for (const int node : {0, 1, 2, 3}) EXPECT_EQ(local(node), "") << "a run that ends cleans up";
    EXPECT_TRUE(fs::exists(folder_.file(std::string("disk/node0/") + other_run + "/step_00000011")))
        << "another run's";
  }
}

TEST_F(LocalCheckpoints, AnyLayoutFindsShardsOnAnyNode) {
  ASSERT_EQ(run(train(4, "run.directory=reference run.steps=8")), 0) << err();
  interrupt({0, 1, 2, 3});
  // Ranks in another order, one on a new node, with another layout.
  ASSERT_EQ(run(on_nodes({2, 7, 1}, "parallel.tensor=3 run.steps=8")), 0) << out() << err();
  EXPECT_EQ(last_job().restored, 8);
  expect_equal_checkpoints("run/checkpoints/step_00000008", "reference/checkpoints/step_00000008");
  for (const int node : {7, 2, 1}) EXPECT_EQ(local(node), "");
  EXPECT_NE(local(0), "") << "a node that is not there";
  // The node returns after the run has continued from step 8 without it.
  ASSERT_EQ(run(on_nodes({0, 3}, "run.steps=12")), 0) << out() << err();
  EXPECT_EQ(last_job().restored, 8);
  EXPECT_EQ(local(0), "");
}

/// Pages are rounded up, and the structure of a shard is not counted.
TEST_F(LocalCheckpoints, CheckPredictsTheirSize) {
  interrupt({0, 1, 2, 3});
  std::int64_t most = 0;
  for (const std::string& name : names("run/checkpoints/step_00000005", ".h5"))
    if (name != "index.h5")
      most = std::max<std::int64_t>(
          most, fs::file_size(folder_.file("run/checkpoints/step_00000005/" + name)));
  ASSERT_EQ(run("trireme check deck.toml --ranks 4 checkpoint.local=disk checkpoint.local_every=2 "
                "checkpoint.asynchronous=false"),
            0);
  const std::string said = out();
  const auto value = [&](const std::string& row) {
    const auto at = said.rfind(row);
    EXPECT_NE(at, std::string::npos) << said;
    std::istringstream words(said.substr(at + row.size()));
    double number = 0;
    std::string unit;
    words >> number >> unit;
    EXPECT_EQ(unit, "KiB") << said;
    return number * 1024;
  };
  EXPECT_EQ(value("checkpoint copy (host)"), value("per rank"));
  EXPECT_NEAR(value("per node"), 3 * value("per rank"), 0.01 * value("per node"));
  // A page at most for each of the 3 · 21 slices of a rank.
  EXPECT_LE(std::abs(value("per rank") / 2 - static_cast<double>(most)), 63 * 4096 + 65536);
  EXPECT_GT(value("per rank") / 2, 0.5 * static_cast<double>(most));
}

TEST_F(LocalCheckpoints, OneNodeReportsOnceThatItHasNoCopy) {
  ASSERT_EQ(run(train(1, "run.directory=reference")), 0) << err();
  for (const std::string asynchronous : {"true", "false"}) {
    const std::string arguments = "checkpoint.asynchronous=" + asynchronous;
    interrupt({0}, arguments);
    EXPECT_EQ(occurrences(out(), "no copy on another node"), 1) << out();
    const auto newest = static_cast<int>(newest_step(local(0)));
    ASSERT_EQ(run(on_nodes({0}, arguments)), 0) << err();
    expect_reference(asynchronous, newest);
    fs::remove_all(folder_.file("run"));
  }
}

TEST_F(LocalCheckpoints, FullOrMissingDiskGivesOneWarningPerNode) {
  ASSERT_EQ(run(train(2, "run.directory=reference")), 0) << err();
  folder_.write("disk", "no folder");
  ASSERT_EQ(run(on_nodes({0, 1}, "")), 0) << err();
  for (const char* node : {"node0: ", "node1: "}) EXPECT_EQ(occurrences(err(), node), 1) << err();
  expect_reference("missing", 0);
  fs::remove(folder_.file("disk"));
  fs::remove_all(folder_.file("run"));
  const SmallDisk full(folder_.file("disk/node0"), 16 << 10);
  if (!full.why_not().empty()) GTEST_SKIP() << full.why_not();
  fs::create_directories(folder_.file("run/checkpoints"));
  folder_.write("run/checkpoints/step_00000010.partial", "in the way");
  EXPECT_EQ(run(on_nodes({0, 1}, "checkpoint.asynchronous=false")), 1);
  EXPECT_EQ(occurrences(err(), "trireme: warning"), 1) << err();
  EXPECT_NE(err().find("free some space"), std::string::npos) << err();
  fs::remove(folder_.file("run/checkpoints/step_00000010.partial"));
  ASSERT_EQ(run(on_nodes({0, 1}, "")), 0) << err();
  expect_reference("the other node has both shards", 8);
}

TEST_F(LocalCheckpoints, RejectAFolderSharedByNodes) {
  EXPECT_EQ(run(on_nodes({0, 1}, "checkpoint.local=disk")), 2);
  expect_one_error({"the same folder on node", "%node%"});
}

/// Two ranks on one node, and one on the other.
TEST_F(LocalCheckpoints, SupportNodesWithUnequalRanks) {
  ASSERT_EQ(run(train(3, "run.directory=reference")), 0) << err();
  interrupt({0, 0, 1});
  for (const int node : {0, 1})
    EXPECT_EQ(names(local(node) + "/step_00000008", ".h5").size(), 3u) << node;
  keep_state();
  for (const int lost : {0, 1}) {
    bring_back();
    fs::remove_all(folder_.file(local(lost)));
    ASSERT_EQ(run(on_nodes({0, 0, 1}, "")), 0) << err();
    expect_reference("a node is lost", 8);
  }
}

TEST_F(LocalCheckpoints, AnotherRunInTheDirectoryIgnoresThem) {
  ASSERT_EQ(run(train(2, "run.directory=reference")), 0) << err();
  interrupt({0, 1});
  ASSERT_EQ(run(on_nodes({0, 1}, "checkpoint.restart=none run.steps=3")), 0) << err();
  EXPECT_EQ(last_job().restored, 0);
  ASSERT_EQ(run(on_nodes({0, 1}, "")), 0) << err();
  EXPECT_EQ(last_job().restored, 3);
  EXPECT_EQ(metrics("run", "loss"), metrics("reference", "loss"));
  // A file that names no run any more.
  ASSERT_EQ(run("rm -rf run disk"), 0);
  interrupt({0, 1});
  folder_.write("run/checkpoints/attempt", "0123");
  ASSERT_EQ(run(on_nodes({0, 1}, "")), 0) << err();
  EXPECT_EQ(occurrences(err(), "trireme: warning"), 1) << err();
  expect_reference("damaged", 5);
}

}  // namespace
}  // namespace trireme::commands
