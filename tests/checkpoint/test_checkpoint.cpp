#include <trireme/base/check.hpp>
#include <trireme/checkpoint/reader.hpp>
#include <trireme/checkpoint/verify.hpp>
#include <trireme/checkpoint/writer.hpp>

#include <checkpoint/support.hpp>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <numeric>
#include <vector>

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using namespace checkpoint::testing;
using trireme::testing::read_file;
using trireme::testing::TemporaryFolder;

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() : weight_(6 * 700), moment_(5), half_(12) {
    std::iota(weight_.begin(), weight_.end(), 0.25f);
    std::iota(moment_.begin(), moment_.end(), -2.0);
    std::iota(half_.begin(), half_.end(), std::uint16_t{0x7F80});  // infinity, then NaNs
  }

  std::vector<ArrayView> views() const {
    return {{"model/weight", DType::fp32, {6, 700}, weight_.data()},
            {"optimizer/weight/moment", DType::fp64, {5}, moment_.data()},
            {"model/half", DType::bf16, {3, 4}, half_.data()},
            {"model/empty", DType::fp32, {0, 4}, nullptr},
            {"optimizer/scale", DType::fp64, {}, moment_.data()}};
  }

  void save(std::int64_t step, std::int64_t keep = 0) const {
    write(directory(), {step, 10 * step, "[run]\nsteps = 7\n"}, views(), keep);
  }
  std::string directory() const { return folder_.file("checkpoints"); }
  std::string folder(const std::string& name) const { return directory() + "/" + name; }
  std::vector<std::string> names() const { return names_in(directory()); }

  TemporaryFolder folder_;
  std::vector<float> weight_;
  std::vector<double> moment_;
  std::vector<std::uint16_t> half_;
};

TEST_F(CheckpointTest, KeepsFilesAndDetectsTheirDamage) {
  const Files files{{"tokenizer.json", std::string("{\"a\":\0 1}\n", 10)}, {"empty.txt", ""}};
  write(directory(), {3, 30, "# deck\n", "", {}, files}, views(), 0);
  const std::string path = folder("step_00000003");
  EXPECT_EQ(Reader(path).kept_files(), files);
  EXPECT_EQ(Reader(path, Opening::manifest).kept_files(), files);
  EXPECT_EQ(Reader(path).state().deck_toml, "# deck\n");
  EXPECT_EQ(read_file(path + "/tokenizer.json"), files.at("tokenizer.json"));
  save(4);
  EXPECT_EQ(Reader(folder("step_00000004")).kept_files(), Files{});
  damage(path + "/tokenizer.json");
  for (const auto& use :
       {std::function<void()>([&] { Reader{path}; }), std::function<void()>([&] { verify(path); }),
        std::function<void()>([&] { Reader(path, Opening::manifest).kept_files(); })})
    expect_mentions(message_of(use), {"tokenizer.json", "damaged"});
  fs::remove(path + "/empty.txt");
  expect_mentions(message_of([&] { Reader(path, Opening::manifest).kept_files(); }),
                  {"empty.txt", "is missing"});
}

TEST_F(CheckpointTest, RejectsKeptFilesWithTheNamesOfOtherMembers) {
  for (const char* name : {deck_name, index_name, manifest_name, "shard_000000.h5", "a/b"})
    expect_mentions(message_of([&] {
                      write(directory(), {3, 30, "", "", {}, {{name, "x"}}}, views(), 0);
                    }),
                    {name});
  EXPECT_EQ(names(), std::vector<std::string>{});
}

TEST_F(CheckpointTest, RoundTripsEveryBit) {
  save(100);
  EXPECT_EQ(latest(directory()), folder("step_00000100"));
  const Reader reader(*latest(directory()));
  EXPECT_EQ(reader.state().step, 100);
  EXPECT_EQ(reader.state().samples, 1000);
  EXPECT_EQ(reader.state().deck_toml, "[run]\nsteps = 7\n");
  ASSERT_EQ(reader.arrays().size(), 5u);
  std::vector<float> weight(weight_.size());
  reader.read("model/weight", DType::fp32, {6, 700}, weight.data());
  EXPECT_EQ(weight, weight_);
  std::vector<double> moment(5);
  reader.read("optimizer/weight/moment", DType::fp64, {5}, moment.data());
  EXPECT_EQ(moment, moment_);
  std::vector<std::uint16_t> half(12);
  reader.read("model/half", DType::bf16, {3, 4}, half.data());
  EXPECT_EQ(half, half_);
  reader.read("model/empty", DType::fp32, {0, 4}, nullptr);
  double scale = 0;
  reader.read("optimizer/scale", DType::fp64, {}, &scale);
  EXPECT_EQ(scale, moment_[0]);
}

TEST_F(CheckpointTest, ReadsSlices) {
  save(1);
  const Reader reader(folder("step_00000001"));
  std::vector<float> block(2 * 30);
  reader.read_slice("model/weight", DType::fp32, {6, 700}, {3, 100}, {2, 30}, block.data());
  for (std::size_t i = 0; i < 2; ++i)
    for (std::size_t j = 0; j < 30; ++j)
      EXPECT_EQ(block[i * 30 + j], weight_[(3 + i) * 700 + 100 + j]);
}

TEST_F(CheckpointTest, RequiresTheStoredTypeAndShape) {
  save(1);
  const Reader reader(folder("step_00000001"));
  std::vector<float> out(8400);
  expect_mentions(message_of([&] {
                    reader.read("model/weight", DType::fp32, {12, 700}, out.data());
                  }),
                  {"model/weight", "[6, 700]", "[12, 700]"});
  expect_mentions(message_of([&] {
                    reader.read("model/weight", DType::fp64, {6, 700}, out.data());
                  }),
                  {"fp32", "fp64"});
  expect_mentions(message_of([&] { reader.read("model/bias", DType::fp32, {6}, out.data()); }),
                  {"no array 'model/bias'"});
  EXPECT_TRUE(reader.has("model/weight"));
  EXPECT_FALSE(reader.has("model/bias"));
}

TEST_F(CheckpointTest, KeepsTheNewestAndTheLastWritten) {
  for (const std::int64_t step : {10, 20, 30, 40}) save(step, 2);
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step_00000030", "step_00000040"}));
  save(40, 2);  // the same step again
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step_00000030", "step_00000040"}));
  EXPECT_EQ(Reader(folder("step_00000040")).state().step, 40);
}

TEST_F(CheckpointTest, KeepsMultiplesBesideTheNewest) {
  for (const std::int64_t step : {10, 15, 20, 25, 30, 35}) {
    const auto partial = begin(directory(), step);
    const std::vector<SliceView> slices{{"x", DType::fp64, {5}, {0}, {5}, moment_.data()}};
    commit(directory(), {step, step, ""}, {write_shard(partial, 0, slices)}, {2, 10});
  }
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step_00000010", "step_00000020",
                                               "step_00000030", "step_00000035"}));
}

TEST_F(CheckpointTest, FailedCommitLeavesOnlyThePreviousCheckpoint) {
  save(1);
  const auto slice = [&](std::int64_t first, std::int64_t count) {
    return SliceView{"x", DType::fp64, {5}, {first}, {count}, moment_.data() + first};
  };
  const auto commit_two = [&](const SliceView& a, const SliceView& b) {
    const auto partial = begin(directory(), 2);
    const auto first = write_shard(partial, 0, std::vector{a});
    const auto second = write_shard(partial, 1, std::vector{b});
    commit(directory(), {2, 20, ""}, {first, second}, {1, 0});
  };
  expect_mentions(message_of([&] { commit_two(slice(0, 2), slice(3, 2)); }),
                  {"'x'", "4 elements", "[5]", "missing"});
  expect_mentions(message_of([&] { commit_two(slice(0, 3), slice(2, 3)); }),
                  {"'x'", "[0, 3)", "[2, 5)", "overlap"});
  SliceView other = slice(3, 2);
  other.shape = {6};
  expect_mentions(message_of([&] { commit_two(slice(0, 3), other); }), {"'x'", "[5]", "[6]"});
  expect_mentions(message_of([&] {
                    const auto partial = begin(directory(), 2);
                    const auto shard = write_shard(partial, 0, std::vector{slice(0, 5)});
                    fs::remove(partial + "/" + shard.file);
                    commit(directory(), {2, 20, ""}, {shard}, {1, 0});
                  }),
                  {"shard_000000.h5", "missing", "ranks"});
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step_00000001"}));
  EXPECT_EQ(latest(directory()), folder("step_00000001"));
  commit_two(slice(0, 3), slice(3, 2));
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step_00000002"}));
}

TEST_F(CheckpointTest, RestoresTheStateOfTheRun) {
  write(directory(), {7, 70, "x = 1\n", "tensor 2 x \"data\" 3", {{"loss_scale", "65536"}}},
        views(), 0);
  const Reader reader(folder("step_00000007"));
  EXPECT_EQ(reader.state().layout, "tensor 2 x \"data\" 3");
  EXPECT_EQ(reader.state().values.at("loss_scale"), "65536");
  EXPECT_EQ(reader.state().deck_toml, "x = 1\n");
}

TEST_F(CheckpointTest, HasNoLatestWithoutACheckpoint) {
  EXPECT_EQ(latest(directory()), std::nullopt);
  fs::create_directory(directory());
  EXPECT_EQ(latest(directory()), std::nullopt);
}

TEST_F(CheckpointTest, IgnoresAnUnusableLatestFile) {
  save(1);
  save(2);
  for (const char* content : {"", "step_00000009\n", "../elsewhere", "\xFF\xFE"}) {
    std::ofstream(folder("latest"), std::ios::binary) << content;
    EXPECT_EQ(latest(directory()), folder("step_00000002"));
  }
  fs::remove(folder("latest"));
  EXPECT_EQ(latest(directory()), folder("step_00000002"));
}

TEST_F(CheckpointTest, RemovesLeftoversOfAKilledRun) {
  save(1);
  fs::create_directory(folder("step_00000002.partial"));
  std::ofstream(folder("latest.partial-4711-3")) << "step_0000";
  std::ofstream(folder("latest.partial")) << "step_00000002\nstep_00000001\n";
  EXPECT_EQ(latest(directory()), folder("step_00000001"));
  save(3);
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step_00000001", "step_00000003"}));
}

/// A file size limit replaces a full disk: the same calls fail, with another errno.
TEST_F(CheckpointTest, FullDiskNamesTheFileAndKeepsThePreviousCheckpoint) {
  save(1);
  signal(SIGXFSZ, SIG_IGN);
  rlimit former{};
  getrlimit(RLIMIT_FSIZE, &former);
  const rlimit small{8192, former.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const auto message = message_of([&] { save(2, 1); });
  setrlimit(RLIMIT_FSIZE, &former);
  expect_mentions(message, {"step_00000002", "shard_000000.h5", "File too large"});
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step_00000001"}));
  EXPECT_EQ(latest(directory()), folder("step_00000001"));
}

TEST_F(CheckpointTest, RejectsDuplicateAndInvalidNames) {
  const std::vector<ArrayView> twice{{"a", DType::fp64, {5}, moment_.data()},
                                     {"a", DType::fp64, {5}, moment_.data()}};
  EXPECT_THROW(write(directory(), {1, 1, ""}, twice, 0), Error);
  for (const char* name : {"", "/a", "a/", "a//b", "."}) {
    const std::vector<ArrayView> bad{{name, DType::fp64, {5}, moment_.data()}};
    EXPECT_THROW(write(directory(), {1, 1, ""}, bad, 0), Error) << name;
  }
}

}  // namespace
}  // namespace trireme::checkpoint
