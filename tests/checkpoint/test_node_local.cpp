#include <trireme/base/text.hpp>
#include <trireme/checkpoint/node_local.hpp>
#include <trireme/checkpoint/shard.hpp>

#include <checkpoint/support.hpp>

#include <gtest/gtest.h>

namespace trireme::checkpoint {
namespace {

using namespace checkpoint::testing;
using trireme::testing::read_file;
using trireme::testing::TemporaryFolder;
using Names = std::vector<std::string>;
namespace fs = std::filesystem;

class Local : public ::testing::Test {
 protected:
  std::string directory(const std::string& name = "c") const {
    fs::create_directories(folder_.file(name));
    return folder_.file(name);
  }

  /// A local checkpoint of two shards: `here` are on this node.
  void save_part(const std::string& node, std::int64_t step, const std::vector<int>& here) const {
    const TestArray array("w", DType::fp32, {8});
    const std::string partial = partial_folder(directory(node), step);
    fs::create_directories(partial);
    std::vector<ShardSummary> summaries;
    for (const int number : {0, 1}) {
      const SliceView slice{"w", DType::fp32,
                            {8}, {4 * number},
                            {4}, &array.bytes[16u * static_cast<unsigned>(number)]};
      summaries.push_back(write_shard(partial, number, std::vector<SliceView>{slice}));
      if (std::ranges::find(here, number) == here.end())
        fs::remove(partial + "/" + shard_name(number));
    }
    const RunState state{step, 4 * step, "# deck\n"};
    commit_part(directory(node), step, to_json(manifest_of(state, summaries)), files_of(state),
                {2, 0});
  }

  std::vector<NodeLocalPart> parts(const std::string& node) const {
    std::vector<std::string> damage;
    auto found = parts_in(directory(node), damage);
    EXPECT_EQ(damage, Names());
    return found;
  }

  TemporaryFolder folder_;
};

TEST_F(Local, AttemptsOfARunHaveIncreasingNumbers) {
  EXPECT_EQ(read_attempt(directory()), std::nullopt);
  const Attempt first = begin_attempt(directory());
  EXPECT_EQ(first.number, 1);
  EXPECT_EQ(read_attempt(directory()), first);
  const Attempt second = begin_attempt(directory());
  EXPECT_EQ(second.run, first.run);
  EXPECT_GT(second.number, first.number);
  EXPECT_EQ(read_attempt(directory()), second);
  EXPECT_NE(local_folder(second), local_folder(first));
  EXPECT_NE(begin_attempt(directory("other")).run, first.run);
  replace(directory() + "/attempt", "damaged");
  EXPECT_NE(begin_attempt(directory()).run, first.run);
}

/// Both copies of a directory continue: their checkpoints must not be mistaken for each other.
TEST_F(Local, CopiedDirectoriesBeginDifferentAttempts) {
  begin_attempt(directory());
  fs::copy(directory(), directory("copy"), fs::copy_options::recursive);
  EXPECT_NE(begin_attempt(directory()).number, begin_attempt(directory("copy")).number);
}

TEST_F(Local, RejectsADamagedAttemptFile) {
  const std::string good = "0123456789abcdef 12\n";
  for (std::string content :
       {std::string(), std::string("\n"), good + "x", good.substr(1), good.substr(0, 16),
        good.substr(0, 17), good.substr(0, 18), std::string("0123456789abcdeF 12\n"),
        std::string("0123456789abcdef -1\n"), std::string("0123456789abcdef 012\n"),
        std::string("0123456789abcdef 99999999999999999999\n"), std::string(5000, 'a')}) {
    replace(directory() + "/attempt", content);
    EXPECT_THROW(read_attempt(directory()), Error) << content;
  }
  replace(directory() + "/attempt", good);
  EXPECT_EQ(read_attempt(directory()), (Attempt{"0123456789abcdef", 12}));
}

TEST_F(Local, RemovesOnlyFoldersOfTheRun) {
  const std::string run = "0123456789abcdef";
  for (const char* name :
       {"trireme-0123456789abcdef-2", "trireme-0123456789abcdef-3", "trireme-0123456789abcdef-x",
        "trireme-0123456789abcde0-2", "step_00000001", "else"})
    fs::create_directories(directory() + "/" + name + "/below");
  remove_attempts(directory(), run, 3);
  EXPECT_EQ(names_in(directory()),
            (Names{"else", "step_00000001", "trireme-0123456789abcde0-2",
                   "trireme-0123456789abcdef-3", "trireme-0123456789abcdef-x"}));
  remove_attempts(directory(), run, std::nullopt);
  EXPECT_FALSE(fs::exists(directory() + "/" + local_folder({run, 3})));
  remove_attempts(directory() + "/missing", run, std::nullopt);
}

TEST_F(Local, NodeNameReplacesThePlaceholder) {
  EXPECT_EQ(local_directory("/disk/t", "n7"), "/disk/t");
  EXPECT_EQ(local_directory("/bb/%node%/x%node%", "%node%7"), "/bb/%node%7/x%node%7");
}

TEST_F(Local, KeepsTwoCompleteCheckpoints) {
  for (const int step : {1, 2, 3}) save_part("a", step, {0});
  EXPECT_EQ(folders_in(directory("a")), (Names{"step_00000003", "step_00000002"}));
  const auto found = parts("a");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].step, 3);
  EXPECT_EQ(found[0].shard_count, 2);
  EXPECT_EQ(found[0].shards, Names{"shard_000000.h5"});
  const NodeLocalPart sent = parse_part(pack(found[0]));
  EXPECT_EQ(std::tie(sent.step, sent.digest, sent.shard_count, sent.shards),
            std::tie(found[0].step, found[0].digest, found[0].shard_count, found[0].shards));
}

TEST_F(Local, FailedCheckpointMakesRoomForTheNext) {
  for (const int step : {1, 2}) save_part("a", step, {0, 1});
  fs::create_directories(partial_folder(directory("a"), 3));
  abandon_part(directory("a"), 3);
  EXPECT_EQ(names_in(directory("a")), Names{"step_00000002"});
  abandon_part(directory("a"), 4);
  EXPECT_EQ(names_in(directory("a")), Names{"step_00000002"});
  abandon_part(directory("none"), 4);
}

TEST_F(Local, AssemblesOnlyPartsWithEqualManifests) {
  save_part("a", 1, {0});
  save_part("b", 1, {1});
  save_part("b", 2, {0, 1});
  auto others = parts("b");
  auto found = assembled({parts("a"), others});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].step, 2);
  EXPECT_TRUE(found[0].complete()) << "one node has all";
  EXPECT_EQ(found[1].step, 1);
  EXPECT_TRUE(found[1].complete());
  EXPECT_EQ(readers(found[1]),
            (std::map<std::string, std::size_t>{{"shard_000000.h5", 0}, {"shard_000001.h5", 1}}));
  EXPECT_FALSE(assembled({parts("a")})[0].complete());
  others[1].digest += "0";
  found = assembled({parts("a"), others});
  ASSERT_EQ(found.size(), 3u);
  EXPECT_TRUE(found[0].complete());
  EXPECT_FALSE(found[1].complete());
  EXPECT_FALSE(found[2].complete());
}

TEST_F(Local, BalancesShardReadsOverTheirNodes) {
  const NodeLocalCheckpoint c{
      1, "", 4, {{"a", {0, 1}}, {"b", {0, 1}}, {"c", {0, 1}}, {"d", {0, 1}}}};
  std::map<std::size_t, int> of_node;
  for (const auto& [shard, node] : readers(c)) ++of_node[node];
  EXPECT_EQ(of_node, (std::map<std::size_t, int>{{0, 2}, {1, 2}}));
}

TEST_F(Local, ReportsDamageAndUsesTheRest) {
  save_part("a", 1, {0, 1});
  save_part("a", 2, {0, 1});
  const std::string newest = directory("a") + "/step_00000002/";
  for (const std::string name : {"manifest.json", "deck.toml"}) {
    const std::string content = read_file(newest + name);
    damage(newest + name);
    std::vector<std::string> why;
    const auto found = parts_in(directory("a"), why);
    ASSERT_EQ(why.size(), 1u);
    expect_mentions(why[0], {newest + name});
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].step, 1);
    replace(newest + name, content);
  }
  replace(newest + "shard_000001.h5", "cut");
  EXPECT_EQ(parts("a")[0].shards, Names{"shard_000000.h5"});
  fs::rename(directory("a") + "/step_00000002", directory("a") + "/step_00000007");
  std::vector<std::string> why;
  EXPECT_EQ(parts_in(directory("a"), why).size(), 1u);
  EXPECT_EQ(why.size(), 1u) << "the manifest is that of another step";
}

TEST(PackedTexts, ReadBackAndRejectDamage) {
  const Names texts{"", "a:b", std::string("\0\n", 2), "12:"};
  const std::string packed = pack_texts(texts);
  EXPECT_EQ(unpack_texts(packed), texts);
  EXPECT_EQ(unpack_texts(""), Names());
  for (const std::string bad :
       {"1", "1:", "x:a", ":a", "-1:a", "5:abc", "99999999999999999999999:a"})
    EXPECT_THROW(unpack_texts(bad), Error) << bad;
}

}  // namespace
}  // namespace trireme::checkpoint
