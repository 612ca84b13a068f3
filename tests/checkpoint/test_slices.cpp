#include <trireme/base/check.hpp>
#include <trireme/checkpoint/reader.hpp>
#include <trireme/checkpoint/verify.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/io/hdf5_file.hpp>

#include <hdf5.h>

#include <checkpoint/support.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using namespace checkpoint::testing;
using trireme::testing::read_file;
using trireme::testing::TemporaryFolder;

std::vector<TestArray> arrays_of_all_kinds() {
  std::vector<TestArray> arrays{{"model/layer_0/weight", DType::fp32, {12, 7, 5}},
                                {"model/layer_0/bias", DType::fp64, {13}},
                                {"model/half %b", DType::bf16, {4, 9}},
                                {"model/small", DType::fp16, {6, 3}},
                                {"model/empty", DType::fp32, {0, 4}},
                                {"optimizer.scale", DType::fp64, {}},
                                {"counts", DType::int64, {2, 3, 2, 2}}};
  arrays.emplace_back("large", DType::uint8, Extents{9, 1 << 20});  // several blocks
  return arrays;
}

void expect_slices(const Reader& reader, const std::vector<TestArray>& arrays, std::size_t axis,
                   int parts) {
  for (const auto& array : arrays)
    for (const auto& slab : cut(array.shape, axis, parts)) {
      std::vector<char> found(static_cast<std::size_t>(volume(slab.extent) * size_of(array.dtype)),
                              'x');
      reader.read_slice(array.name, array.dtype, array.shape, slab.offset, slab.extent,
                        found.data());
      EXPECT_TRUE(found == array.slice(slab)) << array.name << " cut into " << parts;
    }
}

TEST(Slices, AnyReadersReadSlicesOfAnyWriters) {
  const TemporaryFolder folder;
  const auto arrays = arrays_of_all_kinds();
  std::int64_t step = 0;
  for (const int writers : {1, 2, 3, 8, 15})
    for (std::size_t axis = 0; axis < 3; ++axis) {
      auto small = arrays;
      if (writers > 3) small.pop_back();
      const auto saved = save_cut(folder.file("c"), ++step, small, axis, writers);
      verify(saved);
      const Reader reader(saved);
      ASSERT_EQ(reader.arrays().size(), small.size());
      for (const int readers : {1, 2, 5, 7})
        for (std::size_t other = 0; other < 3; ++other)
          expect_slices(reader, small, other, readers);
      expect_slices(Reader(saved, Opening::manifest), small, 1, 3);
      fs::remove_all(saved);
    }
}

TEST(Slices, OneShardHoldsSeveralSlicesOfAnArray) {
  const TemporaryFolder folder;
  const TestArray array("a/x", DType::int32, {7, 6});
  const std::vector<Slab> slabs{{{0, 0}, {7, 2}}, {{0, 2}, {3, 4}}, {{3, 2}, {4, 4}}};
  std::vector<std::vector<char>> data;
  for (const auto& slab : slabs) data.push_back(array.slice(slab));
  std::vector<SliceView> views;
  for (std::size_t i = 0; i < slabs.size(); ++i)
    views.push_back(
        {array.name, array.dtype, array.shape, slabs[i].offset, slabs[i].extent, data[i].data()});
  const auto partial = begin(folder.file("c"), 1);
  commit(folder.file("c"), {1, 1, ""}, {write_shard(partial, 4, views)}, {});
  const Reader reader(folder.file("c/step_00000001"));
  std::vector<char> found(array.bytes.size());
  reader.read("a/x", DType::int32, {7, 6}, found.data());
  EXPECT_EQ(found, array.bytes);
  EXPECT_EQ(reader.manifest().shards[0].name, "shard_000004.h5");
  EXPECT_EQ(
      io::Hdf5File::open(folder.file("c/step_00000001/shard_000004.h5")).dataset("a/x@2").shape(),
      (Extents{4, 4}));
}

/// Large page-aligned slices bypass the page cache if the file system supports it. Their
/// remainders, small slices and fetched slices use the cache. The file is the same.
TEST(Slices, DirectWritesGiveTheSameFile) {
  const TemporaryFolder folder;
  const std::vector<std::int64_t> elements{(3 << 20) / 2 + 77, 1000, (9 << 20) / 4, 1 << 18};
  std::vector<std::unique_ptr<char, decltype(&std::free)>> memory;
  std::vector<SliceView> views;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const auto bytes = static_cast<std::size_t>(elements[i]) * 4;
    memory.emplace_back(
        static_cast<char*>(std::aligned_alloc(io::direct_alignment, (bytes + 8191) / 4096 * 4096)),
        &std::free);
    for (std::size_t b = 0; b < bytes; ++b)
      memory.back().get()[b] = static_cast<char>(b * (i + 3) + b / 4096);
    const char* data = memory.back().get();
    SliceView view{"x" + std::to_string(i), DType::fp32, {elements[i]}, {0}, {elements[i]}, data};
    if (i == 3) {
      view.data = nullptr;
      view.copy = [data](std::int64_t begin, std::int64_t count, void* out) {
        std::memcpy(out, data + begin, static_cast<std::size_t>(count));
      };
    }
    views.push_back(std::move(view));
  }
  const std::string used = begin(folder.file("used"), 1);
  const std::string bypassed = begin(folder.file("bypassed"), 1);
  const auto expected = write_shard(used, 0, views, {}, Cache::used);
  const auto found = write_shard(bypassed, 0, views, {}, Cache::bypassed);
  EXPECT_EQ(pack(found), pack(expected));
  EXPECT_EQ(read_file(bypassed + "/shard_000000.h5"), read_file(used + "/shard_000000.h5"));
  for (const auto& slice : found.slices)
    if (slice.bytes() >= 1 << 20) {
      EXPECT_EQ(slice.file_offset % io::direct_alignment, 0) << slice.name;
    }
}

/// HDF5 finds what the manifest lists, and the index shows every array completely.
TEST(Slices, Hdf5ReadsThemThroughTheIndex) {
  const TemporaryFolder folder;
  auto arrays = arrays_of_all_kinds();
  arrays.pop_back();
  const auto saved = save_cut(folder.file("c"), 3, arrays, 0, 4);
  fs::rename(saved, folder.file("elsewhere"));
  const auto index = io::Hdf5File::open(folder.file("elsewhere/index.h5"));
  EXPECT_EQ(index.integer_attribute("step"), 3);
  EXPECT_EQ(index.integer_attribute("samples"), 30);
  EXPECT_EQ(index.string_attribute("layout"), "tensor 2");
  for (const auto& array : arrays) {
    const auto dataset = index.dataset(array.name);
    ASSERT_EQ(dataset.dtype(), array.dtype) << array.name;
    ASSERT_EQ(dataset.shape(), array.shape);
    std::vector<char> found(array.bytes.size());
    dataset.read(Extents(array.shape.size(), 0), array.shape, found.data());
    EXPECT_EQ(found, array.bytes) << array.name;
  }
  const Manifest manifest = read_manifest(folder.file("elsewhere"));
  for (const auto& shard : manifest.shards) {
    const auto file = io::Hdf5File::open(folder.file("elsewhere/" + shard.name));
    for (std::size_t i = 0; i < shard.slices.size(); ++i) {
      const auto dataset = file.dataset(manifest.datasets(shard)[i]);
      EXPECT_EQ(dataset.shape(), shard.slices[i].slab.extent);
      EXPECT_EQ(dataset.file_offset(), shard.slices[i].file_offset);
    }
  }
}

/// HDF5's own calls without Trireme's, including conversion.
TEST(Slices, PlainHdf5CallsReadThem) {
  const TemporaryFolder folder;
  const std::vector<std::uint16_t> half{0x3F80, 0xC000, 0x3E80};  // 1, -2, 1/4 in bf16
  const auto partial = begin(folder.file("c"), 1);
  const std::vector<SliceView> first{{"a/b", DType::bf16, {3}, {0}, {2}, half.data()}};
  const std::vector<SliceView> second{{"a/b", DType::bf16, {3}, {2}, {1}, half.data() + 2}};
  commit(folder.file("c"), {1, 1, ""},
         {write_shard(partial, 0, first), write_shard(partial, 1, second)}, {});
  const auto read = [&] {
    const io::Lock lock;
    std::vector<float> values(3);
    const hid_t file =
        H5Fopen(folder.file("c/step_00000001/index.h5").c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
    const hid_t dataset = H5Dopen2(file, "/a/b", H5P_DEFAULT);
    EXPECT_GE(H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
    H5Dclose(dataset);
    H5Fclose(file);
    return values;
  };
  EXPECT_EQ(read(), (std::vector<float>{1, -2, 0.25f}));
  fs::remove(folder.file("c/step_00000001/shard_000001.h5"));
  EXPECT_TRUE(std::isnan(read()[2])) << "a missing shard must not read as a number";
}

TEST(Slices, H5dumpShowsThem) {
  if (std::system("h5dump --version > /dev/null 2>&1") != 0)
    GTEST_SKIP() << "h5dump is not installed (Debian: hdf5-tools)";
  const TemporaryFolder folder;
  const std::vector<double> values{-2, -1, 0, 1, 2};
  const auto partial = begin(folder.file("c"), 1);
  const std::vector<SliceView> first{{"m/x", DType::fp64, {5}, {0}, {3}, values.data()}};
  const std::vector<SliceView> second{{"m/x", DType::fp64, {5}, {3}, {2}, values.data() + 3}};
  commit(folder.file("c"), {1, 1, ""},
         {write_shard(partial, 0, first), write_shard(partial, 1, second)}, {});
  const auto dump = [&](const std::string& file) {
    EXPECT_EQ(std::system(("h5dump -d /m/x " + folder.file("c/step_00000001/" + file) + " > " +
                           folder.file("dump"))
                              .c_str()),
              0);
    return read_file(folder.file("dump"));
  };
  expect_mentions(dump("index.h5"), {"H5T_IEEE_F64LE", "-2, -1, 0, 1, 2"});
  expect_mentions(dump("shard_000001.h5"), {"H5T_IEEE_F64LE", "(0): 1, 2"});
}

/// A reader of a part verifies the blocks that it touches, each once.
TEST(Slices, ReadingVerifiesOnlyItsBlocks) {
  const TemporaryFolder folder;
  const TestArray array("x", DType::uint8, {5, block_bytes / 2});  // blocks of 2, 2 and 1 rows
  const std::vector<ArrayView> views{{"x", DType::uint8, array.shape, array.bytes.data()}};
  write(folder.file("c"), {1, 1, ""}, views, 0);
  const Reader reader(folder.file("c/step_00000001"));
  std::vector<char> row(static_cast<std::size_t>(block_bytes / 2));
  const auto read_row = [&](std::int64_t i) {
    reader.read_slice("x", DType::uint8, array.shape, {i, 0}, {1, block_bytes / 2}, row.data());
    EXPECT_TRUE(std::equal(row.begin(), row.end(), array.bytes.begin() + i * block_bytes / 2));
  };
  EXPECT_EQ(reader.bytes_read(), 0);
  read_row(1);
  EXPECT_EQ(reader.bytes_verified(), block_bytes);
  EXPECT_EQ(reader.bytes_read(), block_bytes);
  read_row(0);  // from memory
  EXPECT_EQ(reader.bytes_read(), block_bytes);
  read_row(4);
  EXPECT_EQ(reader.bytes_verified(), block_bytes + block_bytes / 2);
  read_row(2);
  EXPECT_EQ(reader.bytes_verified(), 2 * block_bytes + block_bytes / 2);
  EXPECT_EQ(reader.bytes_read(), 2 * block_bytes + block_bytes / 2);
  read_row(1);  // already verified, so only the row itself is read
  EXPECT_EQ(reader.bytes_verified(), 2 * block_bytes + block_bytes / 2);
  EXPECT_EQ(reader.bytes_read(), 3 * block_bytes);
}

TEST(Slices, SummariesRoundTripAsBytes) {
  const ShardSummary summary{
      "shard_000001.h5",
      9000,
      {1, 2},
      {{"a/b", DType::bf16, {4, 6}, {{0, 3}, {4, 3}}, 2048, {{3, 4}, {5, 6}}},
       {"scalar", DType::fp64, {}, {{}, {}}, 4096, {{7, 8}}}}};
  const std::string bytes = pack(summary);
  const auto back = parse_summary(bytes);
  EXPECT_EQ(pack(back), bytes);
  EXPECT_EQ(back.slices[0].slab, summary.slices[0].slab);
  EXPECT_EQ(back.slices[0].blocks[1], (Digest{5, 6}));
  for (std::size_t n = 0; n < bytes.size(); ++n)
    EXPECT_THROW(parse_summary(std::string_view(bytes).substr(0, n)), Error) << n;
  EXPECT_THROW(parse_summary(bytes + "x"), Error);
}

TEST(Slices, ReportsTheLargestDifferences) {
  const TemporaryFolder folder;
  std::vector<float> a{1, 2, 3, 4};
  std::vector<float> b{1, 2.5f, 3, 4.25f};
  std::vector<std::uint16_t> h{0x3C00, 0x4000};  // 1, 2 in fp16
  std::vector<std::uint16_t> g{0x3C00, 0x4200};  // 1, 3
  const auto save = [&](std::int64_t step, std::vector<float>& x, std::vector<std::uint16_t>& y,
                        const std::string& name, Extents shape) {
    const std::vector<ArrayView> views{{"x", DType::fp32, {2, 2}, x.data()},
                                       {"y", DType::fp16, {2}, y.data()},
                                       {"shape", DType::fp32, std::move(shape), x.data()},
                                       {name, DType::fp32, {1}, x.data()}};
    write(folder.file("c"), {step, step, ""}, views, 0);
  };
  save(1, a, h, "p", {4});
  save(2, b, g, "q", {2, 2});
  const auto found =
      compare(Reader(folder.file("c/step_00000001")), Reader(folder.file("c/step_00000002")));
  ASSERT_EQ(found.size(), 5u);
  EXPECT_EQ(found[0].different, 2);
  EXPECT_EQ(found[0].largest_absolute, 0.5);
  EXPECT_EQ(found[0].largest_relative, 0.2);
  EXPECT_EQ(found[1].largest_absolute, 1);
  EXPECT_EQ(found[2].only, "fp32 [4] and fp32 [2, 2]");
  EXPECT_EQ(found[3].only, "only in the first");
  EXPECT_EQ(found[4].name, "q");
  a[3] = std::nanf("");
  save(3, a, h, "p", {4});
  const auto broken =
      compare(Reader(folder.file("c/step_00000001")), Reader(folder.file("c/step_00000003")));
  EXPECT_TRUE(std::isinf(broken[0].largest_absolute));
  EXPECT_EQ(broken[1].different, 0);
}

}  // namespace
}  // namespace trireme::checkpoint
