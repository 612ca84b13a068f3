#include <trireme/base/check.hpp>
#include <trireme/checkpoint/reader.hpp>
#include <trireme/checkpoint/verify.hpp>

#include <checkpoint/support.hpp>

#include <gtest/gtest.h>

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using namespace checkpoint::testing;
using trireme::testing::read_file;
using trireme::testing::TemporaryFolder;

class Damage : public ::testing::Test {
 protected:
  Damage() {
    for (const std::int64_t step : {1, 2}) save_cut(directory(), step, arrays_, 0, 2);
  }
  std::string directory() const { return folder_.file("c"); }
  std::string first() const { return directory() + "/step_00000001"; }
  std::string second() const { return directory() + "/step_00000002"; }

  /// Offset of the first number of a dataset of the second shard.
  std::int64_t first_number() const {
    return read_manifest(second()).shards[1].slices[0].file_offset;
  }
  bool reads_as_written(const std::string& folder) const {
    const Reader reader(folder);
    for (const auto& array : arrays_) {
      std::vector<char> found(array.bytes.size());
      reader.read(array.name, array.dtype, array.shape, found.data());
      if (found != array.bytes) return false;
    }
    return reader.arrays().size() == arrays_.size() && reader.state().step == 2 &&
           reader.state().samples == 20 && reader.state().deck_toml == "[run]\nsteps = 7\n";
  }

  TemporaryFolder folder_;
  std::vector<TestArray> arrays_{{"weight", DType::fp32, {40, 30}},
                                 {"group/half", DType::bf16, {8, 5}},
                                 {"scale", DType::fp64, {}}};
};

TEST_F(Damage, SkipsADamagedCheckpointAndNamesIt) {
  const auto cut_off = [](const std::string& path) {
    fs::resize_file(path, fs::file_size(path) - 2);
  };
  const auto flip = [](const std::string& path) { damage(path); };
  const auto flip_first = [](const std::string& path) { damage(path, 0); };
  const auto grow = [](const std::string& path) { fs::resize_file(path, fs::file_size(path) + 1); };
  const auto remove = [](const std::string& path) { fs::remove(path); };
  const auto of_another_step = [&](const std::string& path) {
    replace(path, read_file(first() + "/" + fs::path(path).filename().string()));
  };
  struct Case {
    const char* file;
    std::function<void(const std::string&)> harm;
    std::vector<std::string> words;
  };
  const std::vector<Case> cases{
      {"shard_000001.h5", flip_first, {"outside its datasets", "another checkpoint"}},
      {"shard_000001.h5", cut_off, {"truncated"}},
      {"shard_000000.h5", grow, {"expected"}},
      {"shard_000001.h5", remove, {"missing", "copy the folder again"}},
      {"manifest.json", flip, {"damaged"}},
      {"manifest.json", cut_off, {"damaged"}},
      {"manifest.json", remove, {"not a complete checkpoint"}},
      {"deck.toml", flip, {"damaged", "copy the folder again"}},
      {"deck.toml", remove, {"missing"}},
      {"index.h5", flip, {"damaged"}},
      {"index.h5", cut_off, {"truncated"}},
      {"index.h5", remove, {"missing"}},
      {"index.h5", of_another_step, {"part of another checkpoint"}}};
  for (const auto& [file, harm, words] : cases) {
    const std::string path = second() + "/" + file;
    const std::string bytes = read_file(path);
    harm(path);
    const auto message = message_of([&] { Reader{second()}; });
    expect_mentions(message, words);
    expect_mentions(message, {path});
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(latest(directory()), first()) << file;
    expect_mentions(::testing::internal::GetCapturedStderr(), {"is skipped", path, words[0]});
    EXPECT_THROW(verify(second()), Error);
    replace(path, bytes);
    EXPECT_EQ(latest(directory()), second()) << file;
  }
}

TEST_F(Damage, ReadingABlockDetectsItsDamage) {
  damage(second() + "/shard_000001.h5", first_number());
  EXPECT_EQ(latest(directory()), second()) << "numbers are verified when they are read";
  const Reader reader(second());
  std::vector<char> out(40 * 30 * 4);
  reader.read_slice("weight", DType::fp32, {40, 30}, {0, 0}, {20, 30}, out.data());
  const auto message = message_of([&] {
    reader.read("weight", DType::fp32, {40, 30}, out.data());
  });
  expect_mentions(message, {"step_00000002/shard_000001.h5", "'weight'", "block 0 of 1",
                            text("bytes ", first_number()), "continue from another checkpoint"});
  expect_mentions(message_of([&] { verify(second()); }), {"shard_000001.h5", "'weight'"});
  std::set<std::string> damaged{second()};
  EXPECT_EQ(latest(directory(), damaged), first());
  damaged.insert(first());
  EXPECT_EQ(latest(directory(), damaged), std::nullopt);
}

TEST_F(Damage, DetectsShardsOfAnotherStep) {
  auto others = arrays_;
  for (auto& array : others)
    for (auto& byte : array.bytes) byte = static_cast<char>(byte + 1);
  const auto third = save_cut(directory(), 3, others, 0, 2);
  fs::copy_file(third + "/shard_000000.h5", second() + "/shard_000000.h5",
                fs::copy_options::overwrite_existing);
  EXPECT_THROW(reads_as_written(second()), Error);
  EXPECT_THROW(verify(second()), Error);
}

TEST_F(Damage, ManifestReadersDetectDamageInTheirSlices) {
  damage(second() + "/shard_000001.h5", 0);
  const Reader reader(second(), Opening::manifest);
  std::vector<char> out(40 * 30 * 4);
  reader.read_slice("weight", DType::fp32, {40, 30}, {0, 0}, {20, 30}, out.data());
  expect_mentions(
      message_of([&] {
        reader.read_slice("weight", DType::fp32, {40, 30}, {20, 0}, {20, 30}, out.data());
      }),
      {"shard_000001.h5", "outside"});
  damage(second() + "/deck.toml");
  EXPECT_THROW(Reader(second(), Opening::manifest), Error);
}

/// A complete manifest of a later format, and one with a seal that this program does not know.
TEST_F(Damage, ReportsAManifestOfALaterFormat) {
  const std::string path = second() + "/manifest.json";
  std::string content = read_file(path);
  const auto format = content.find("\"format\":2");
  ASSERT_NE(format, std::string::npos);
  content.replace(format, 10, "\"format\":3");
  const std::vector<std::string> words{path, "format 3", "newer"};
  expect_mentions(message_of([&] { parse_manifest(content, path); }), words);
  const auto seal = content.rfind(",\n\"checksum\"");
  const auto body = content.substr(0, seal);
  const auto hex = checksum(body.data(), body.size()).hex();
  content = body + ",\n\"checksum\":\"" + hex + "\"}\n";
  replace(path, content);
  expect_mentions(message_of([&] { Reader{second()}; }), words);
  EXPECT_EQ(latest(directory()), first());
}

TEST_F(Damage, DetectsEveryFlippedBitOfTheManifest) {
  const std::string whole = read_file(second() + "/manifest.json");
  for (std::size_t at = 0; at < whole.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      std::string content = whole;
      content[at] = static_cast<char>(content[at] ^ (1 << bit));
      EXPECT_THROW(parse_manifest(content, "m"), Error) << at;
    }
}

/// Sealed manifests that contradict themselves, as from a foreign or faulty writer.
TEST_F(Damage, RejectsAContradictoryManifest) {
  const Manifest good = read_manifest(second());
  const auto refused = [&](const std::function<void(Manifest&)>& change) {
    Manifest bad = good;
    change(bad);
    return message_of([&] { parse_manifest(to_json(bad), "m"); });
  };
  EXPECT_EQ(refused([](Manifest&) {}), "no error");
  expect_mentions(refused([](Manifest& m) { m.shards[0].slices[0].slab.offset[0] += 1; }),
                  {"'weight'", "overlap"});
  expect_mentions(refused([](Manifest& m) { m.shards[1].slices[0].slab.extent[0] += 1; }),
                  {"'weight'", "axis 0"});
  expect_mentions(refused([](Manifest& m) { m.shards[0].slices.pop_back(); }), {"elements"});
  expect_mentions(refused([](Manifest& m) { m.shards[0].slices[0].array = 9; }), {"array number"});
  expect_mentions(refused([](Manifest& m) { m.shards[0].slices[0].blocks.clear(); }), {"digits"});
  expect_mentions(refused([](Manifest& m) { m.shards[0].slices[0].file_offset = 1 << 20; }),
                  {"bytes of a dataset"});
  expect_mentions(refused([](Manifest& m) {
                    m.shards[0].slices[1].file_offset = m.shards[0].slices[0].file_offset;
                  }),
                  {"bytes of a dataset"});
  expect_mentions(refused([](Manifest& m) { m.shards[0].name = "../x"; }), {"file name"});
}

}  // namespace
}  // namespace trireme::checkpoint
