#include <trireme/base/check.hpp>
#include <trireme/checkpoint/reader.hpp>
#include <trireme/checkpoint/writer.hpp>

#include <support/temporary_folder.hpp>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <vector>

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::read_file;
using testing::TemporaryFolder;

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

void expect_mentions(const std::string& message, const std::vector<std::string>& words) {
  for (const auto& word : words)
    EXPECT_NE(message.find(word), std::string::npos) << "'" << word << "' in: " << message;
}

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
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(directory()))
      found.push_back(entry.path().filename().string());
    std::sort(found.begin(), found.end());
    return found;
  }

  /// Flips one bit in the middle of a file.
  static void damage(const std::string& path, std::int64_t at = -1) {
    std::string bytes = read_file(path);
    auto& byte = bytes[at < 0 ? bytes.size() / 2 : static_cast<std::size_t>(at)];
    byte = static_cast<char>(byte ^ 1);
    replace(path, bytes);
  }

  static void replace(const std::string& path, const std::string& bytes) {
    fs::remove(path);  // overwriting in place makes some file systems wait for the device
    std::ofstream(path, std::ios::binary) << bytes;
  }

  TemporaryFolder folder_;
  std::vector<float> weight_;
  std::vector<double> moment_;
  std::vector<std::uint16_t> half_;
};

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

TEST_F(CheckpointTest, IsReadableWithHdf5Tools) {
  save(1);
  const auto dump = folder_.file("dump");
  const auto command = "h5dump -d /optimizer/weight/moment " +
                       folder("step_00000001/shard_000000.h5") + " > " + dump;
  ASSERT_EQ(std::system(command.c_str()), 0);
  expect_mentions(read_file(dump), {"H5T_IEEE_F64LE", "-2, -1, 0, 1, 2"});
}

TEST_F(CheckpointTest, TheFolderCanBeMoved) {
  save(1);
  fs::rename(folder("step_00000001"), folder_.file("elsewhere"));
  std::vector<double> moment(5);
  Reader(folder_.file("elsewhere"))
      .read("optimizer/weight/moment", DType::fp64, {5}, moment.data());
  EXPECT_EQ(moment, moment_);
}

TEST_F(CheckpointTest, TypeAndShapeMustBeTheStoredOnes) {
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

TEST_F(CheckpointTest, KeepsTheNewestAndTheOneJustWritten) {
  for (const std::int64_t step : {10, 20, 30, 40}) save(step, 2);
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step_00000030", "step_00000040"}));
  save(15, 2);  // a run that went back
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step_00000015", "step_00000040"}));
  EXPECT_EQ(latest(directory()), folder("step_00000015"));
  save(15, 2);  // the same step again
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step_00000015", "step_00000040"}));
  EXPECT_EQ(Reader(folder("step_00000015")).state().step, 15);
}

TEST_F(CheckpointTest, WithoutACheckpointThereIsNoLatest) {
  EXPECT_EQ(latest(directory()), std::nullopt);
  fs::create_directory(directory());
  EXPECT_EQ(latest(directory()), std::nullopt);
}

TEST_F(CheckpointTest, DamageIsNamedAndPassedOver) {
  struct Case {
    const char* file;
    std::function<void(const std::string&)> harm;
  };
  const auto flip = [](const std::string& path) { damage(path); };
  const auto flip_first = [](const std::string& path) { damage(path, 0); };
  const auto cut = [](const std::string& path) { fs::resize_file(path, fs::file_size(path) - 2); };
  const auto grow = [](const std::string& path) { fs::resize_file(path, fs::file_size(path) + 1); };
  const auto remove = [](const std::string& path) { fs::remove(path); };
  const std::vector<Case> cases{{"shard_000000.h5", flip},   {"shard_000000.h5", flip_first},
                                {"shard_000000.h5", cut},    {"shard_000000.h5", grow},
                                {"shard_000000.h5", remove}, {"manifest.json", flip},
                                {"manifest.json", cut},      {"manifest.json", remove},
                                {"deck.toml", flip},         {"deck.toml", remove}};
  for (const auto& [file, harm] : cases) {
    save(1);
    save(2);
    harm(folder("step_00000002/") + file);
    expect_mentions(message_of([&] { Reader{folder("step_00000002")}; }), {file});
    EXPECT_EQ(latest(directory()), folder("step_00000001")) << file;
  }
}

TEST_F(CheckpointTest, EveryFlippedBitOfTheManifestIsFound) {
  save(1);
  const auto path = folder("step_00000001/manifest.json");
  const std::string whole = read_file(path);
  for (std::size_t at = 0; at + 1 < whole.size(); ++at) {
    if (std::isspace(static_cast<unsigned char>(whole[at]))) continue;  // may become another space
    damage(path, static_cast<std::int64_t>(at));
    expect_mentions(message_of([&] { read_manifest(folder("step_00000001")); }), {"manifest.json"});
    replace(path, whole);
  }
}

TEST_F(CheckpointTest, AnUnusableLatestFileIsPassedOver) {
  save(1);
  save(2);
  for (const char* content : {"", "step_00000009\n", "../elsewhere", "\xFF\xFE"}) {
    std::ofstream(folder("latest"), std::ios::binary) << content;
    EXPECT_EQ(latest(directory()), folder("step_00000002"));
  }
  fs::remove(folder("latest"));
  EXPECT_EQ(latest(directory()), folder("step_00000002"));
}

TEST_F(CheckpointTest, LeftoversOfAKilledRunAreNoCheckpointsAndGoAway) {
  save(1);
  fs::create_directory(folder("step_00000002.partial"));
  EXPECT_EQ(latest(directory()), folder("step_00000001"));
  save(3);
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step_00000001", "step_00000003"}));
}

/// A limit on the size of files stands in for a full disk: the same calls fail, with another errno.
TEST_F(CheckpointTest, AFullDiskNamesTheFileAndKeepsTheFormerCheckpoint) {
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

TEST_F(CheckpointTest, RefusesNamesThatAreNotUnique) {
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
