#include <trireme/base/check.hpp>
#include <trireme/checkpoint/reader.hpp>
#include <trireme/checkpoint/verify.hpp>

#include <checkpoint/support.hpp>

#include <gtest/gtest.h>

#include <cstdio>
#include <random>
#include <string>
#include <vector>

namespace trireme::checkpoint {
namespace {

using namespace checkpoint::testing;
using trireme::testing::read_file;
using trireme::testing::TemporaryFolder;

/// Mutates a file: a flipped bit, noise, a cut, an insertion, zeros, or bytes from elsewhere.
std::string mutated(std::string bytes, std::mt19937_64& random) {
  const auto below = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  const std::size_t at = below(bytes.size());
  const std::size_t length = 1 + below(std::min<std::size_t>(bytes.size() - at, 64));
  switch (below(6)) {
    case 0:
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
      break;
    case 1:
      for (std::size_t i = 0; i < length; ++i) bytes[at + i] = static_cast<char>(below(256));
      break;
    case 2:
      bytes.resize(at);
      break;
    case 3:
      bytes.insert(at, std::string(length, static_cast<char>(below(256))));
      break;
    case 4:
      bytes.replace(at, length, std::string(length, '\0'));
      break;
    default:
      bytes.replace(below(bytes.size() - length + 1), length, bytes.substr(at, length));
  }
  return bytes;
}

/// Two checkpoints of three shards each; the second is mutated.
class Mutations : public ::testing::Test {
 protected:
  void save(std::vector<TestArray> arrays) {
    arrays_ = std::move(arrays);
    for (const std::int64_t step : {1, 2}) save_cut(directory(), step, arrays_, 0, shards);
  }
  std::string directory() const { return folder_.file("c"); }
  std::string first() const { return directory() + "/step_00000001"; }
  std::string second() const { return directory() + "/step_00000002"; }

  /// True if all arrays and the state are as written. Error if something is refused.
  bool reads_as_written() const {
    const Reader reader(second());
    for (const auto& array : arrays_) {
      std::vector<char> found(array.bytes.size());
      reader.read(array.name, array.dtype, array.shape, found.data());
      if (found != array.bytes) return false;
    }
    return reader.arrays().size() == arrays_.size() && reader.state().step == 2 &&
           reader.state().samples == 20 && reader.state().deck_toml == "[run]\nsteps = 7\n";
  }

  /// Reads as a rank of another layout, which trusts the outline and reads its slices along the
  /// last axis.
  bool slices_read_as_written(int rank) const {
    const Reader reader(second(), Opening::manifest);
    for (const auto& array : arrays_) {
      const auto slabs = cut(array.shape, 9, readers);
      if (static_cast<std::size_t>(rank) >= slabs.size()) continue;
      const Slab& slab = slabs[static_cast<std::size_t>(rank)];
      const auto expected = array.slice(slab);
      std::vector<char> found(expected.size());
      reader.read_slice(array.name, array.dtype, array.shape, slab.offset, slab.extent,
                        found.data());
      if (found != expected) return false;
    }
    return true;
  }

  /// Expects that `read` refuses or returns the original data.
  template <class Read>
  static bool refused(const Read& read) {
    try {
      EXPECT_TRUE(read()) << "a wrong number was accepted";
      return false;
    } catch (const Error&) {
      return true;
    }
  }

  /// The checkpoint to resume from is one of the two; nothing is thrown.
  bool passed_over() const {
    ::testing::internal::CaptureStderr();
    const auto found = latest(directory());
    const auto warnings = ::testing::internal::GetCapturedStderr();
    EXPECT_TRUE(found == first() || found == second()) << found.value_or("none");
    EXPECT_EQ(found == first(), warnings.find("is skipped") != std::string::npos) << warnings;
    return found == first();
  }

  void mutate(int mutations, const std::vector<std::string>& files) {
    std::mt19937_64 random(7);
    for (int i = 0; i < mutations && !HasFailure(); ++i) {
      const std::string path = second() + "/" + files[random() % files.size()];
      SCOPED_TRACE(text(path, ", mutation ", i));
      const std::string bytes = read_file(path);
      const std::string changed = mutated(bytes, random);
      replace(path, changed);
      const bool whole = refused([&] { return reads_as_written(); });
      EXPECT_EQ(whole, changed != bytes);
      const bool slices = refused([&] { return slices_read_as_written(i % readers); });
      EXPECT_LE(slices, whole);
      const bool over = passed_over();
      EXPECT_LE(over, whole);
      refused_ += static_cast<int>(whole);
      slices_refused_ += static_cast<int>(slices);
      passed_over_ += static_cast<int>(over);
      replace(path, bytes);
    }
    EXPECT_TRUE(reads_as_written());
    EXPECT_GE(refused_, mutations * 3 / 4);
    std::printf(
        "%d mutations: %d refused by a reader of everything, %d by a reader of slices, %d "
        "passed over before; the others did not change the data that were read\n",
        mutations, refused_, slices_refused_, passed_over_);
  }

  static constexpr int shards = 3;
  static constexpr int readers = 4;
  TemporaryFolder folder_;
  std::vector<TestArray> arrays_;
  int refused_ = 0;
  int slices_refused_ = 0;
  int passed_over_ = 0;
};

/// No crash, no hang, no wrong weight: everything that is not refused is unchanged.
TEST_F(Mutations, NeverReadAsValidData) {
  save({{"weight", DType::fp32, {40, 30}},
        {"group/half", DType::bf16, {8, 5}},
        {"group/deep/cube", DType::fp64, {6, 3, 4}},
        {"scale", DType::fp64, {}}});
  mutate(soak() ? 10000 : 600, {"manifest.json", "index.h5", "shard_000000.h5", "shard_000001.h5",
                                "shard_000002.h5", "deck.toml"});
}

TEST_F(Mutations, OneMutatedBlockNeverReadsAsValidData) {
  save({{"large", DType::uint8, {3, block_bytes + 5000}}});
  mutate(soak() ? 300 : 3, {"shard_000000.h5", "shard_000001.h5", "shard_000002.h5"});
}

}  // namespace
}  // namespace trireme::checkpoint
