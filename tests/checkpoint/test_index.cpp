#include <trireme/checkpoint/reader.hpp>
#include <trireme/checkpoint/shard.hpp>
#include <trireme/checkpoint/writer.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/io/hdf5_file.hpp>
#include <trireme/io/input_file.hpp>

#include <checkpoint/support.hpp>

#include <gtest/gtest.h>

#include <chrono>

namespace trireme::checkpoint {
namespace {

using namespace checkpoint::testing;
using trireme::testing::TemporaryFolder;

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Summaries as from `shards` ranks that hold each array split along its first or second axis.
std::vector<ShardSummary> summaries_of(int arrays, int shards) {
  const Extents shape{4096, 4096};
  const std::vector<std::vector<Slab>> slabs{cut(shape, 0, shards), cut(shape, 1, shards)};
  std::vector<ShardSummary> summaries;
  for (int s = 0; s < shards; ++s) {
    ShardSummary shard{shard_name(s), std::int64_t{1} << 30, {1, 2}, {}};
    for (int a = 0; a < arrays; ++a) {
      const Slab& slab = slabs[static_cast<std::size_t>(a % 2)][static_cast<std::size_t>(s)];
      shard.slices.push_back({text("model/layer_", a / 10, "/array_", a % 10),
                              DType::fp32,
                              shape,
                              slab,
                              (a + 1) * std::int64_t{1} << 20,
                              {{3, 4}}});
    }
    summaries.push_back(std::move(shard));
  }
  return summaries;
}

/// 500 arrays of 512 ranks in the soak form; smaller by default.
TEST(Index, BuildsQuicklyForManyArraysAndShards) {
  const int arrays = soak() ? 500 : 50;
  const int shards = soak() ? 512 : 64;
  const TemporaryFolder folder;
  std::vector<std::string> sent;
  for (const auto& summary : summaries_of(arrays, shards)) sent.push_back(pack(summary));
  std::vector<ShardSummary> summaries;
  Manifest manifest;
  std::string json;
  const double unpacking = seconds_of([&] {
    for (const auto& bytes : sent) summaries.push_back(parse_summary(bytes));
  });
  const double assembling = seconds_of([&] { manifest = assemble(summaries); });
  const double indexing =
      seconds_of([&] { manifest.files.push_back(write_index(folder.path().string(), manifest)); });
  const double describing = seconds_of([&] { json = to_json(manifest); });
  const double parsing = seconds_of([&] { parse_manifest(json, "m"); });
  std::printf(
      "%d arrays, %d shards: summaries %.2f s, tiling %.2f s, index of %.1f MB %.2f s, manifest of "
      "%.1f MB written in %.2f s and read in %.2f s\n",
      arrays, shards, unpacking, assembling, static_cast<double>(manifest.files[0].bytes) / 1e6,
      indexing, static_cast<double>(json.size()) / 1e6, describing, parsing);
  if (soak()) {
    EXPECT_LT(unpacking + assembling + indexing + describing, 5);
  }
  EXPECT_EQ(io::Hdf5File::open(folder.file("index.h5")).dataset("model/layer_3/array_4").shape(),
            (Extents{4096, 4096}));
}

/// Bytes per second of writing and reading, compared with plain sequential I/O of the same size.
/// Run by hand, since the disk is shared.
TEST(Throughput, ComparesOneShardWithPlainFiles) {
  if (!soak()) GTEST_SKIP() << "set TRIREME_SOAK";
  const TemporaryFolder folder;
  const TestArray array("x", DType::fp32, {256, 1 << 20});
  const std::vector<SliceView> slices{
      {"x", DType::fp32, array.shape, {0, 0}, array.shape, array.bytes.data()}};
  const auto megabytes = static_cast<double>(array.bytes.size()) / 1e6;
  for (int round = 0; round < 3; ++round) {
    const double plain = seconds_of([&] {
      io::AtomicFile file(folder.file("plain"));
      for (std::size_t at = 0; at < array.bytes.size(); at += 1 << 20)
        file.write(static_cast<std::int64_t>(at), array.bytes.data() + at, 1 << 20);
      file.commit();
    });
    const auto partial = begin(folder.file("c"), round);
    ShardSummary shard;
    const double written = seconds_of([&] { shard = write_shard(partial, 0, slices); });
    commit(folder.file("c"), {round, 0, ""}, {shard}, {1, 0});
    std::vector<char> out(array.bytes.size());
    const double plain_read = seconds_of([&] {
      const io::InputFile file(folder.file("plain"));
      for (std::size_t at = 0; at < out.size(); at += 1 << 20)
        file.read(static_cast<std::int64_t>(at), out.data() + at, 1 << 20);
    });
    const double read = seconds_of(
        [&] { Reader(*latest(folder.file("c"))).read("x", DType::fp32, array.shape, out.data()); });
    std::printf("%.0f MB: write %.0f MB/s, plain %.0f; read %.0f MB/s, plain %.0f\n", megabytes,
                megabytes / written, megabytes / plain, megabytes / read, megabytes / plain_read);
  }
}

}  // namespace
}  // namespace trireme::checkpoint
