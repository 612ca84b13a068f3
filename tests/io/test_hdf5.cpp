#include <trireme/base/check.hpp>
#include <trireme/io/hdf5_file.hpp>

#include <support/messages.hpp>
#include <support/temporary_folder.hpp>

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

namespace trireme::io {
namespace {

using testing::message_of;
using testing::read_file;
using testing::TemporaryFolder;
using Extents = std::vector<std::int64_t>;

TEST(Hdf5, KeepsTheBitsOfEveryType) {
  const TemporaryFolder folder;
  const auto path = folder.file("a.h5");
  std::vector<unsigned char> bits(8 * 12);
  std::iota(bits.begin(), bits.end(), static_cast<unsigned char>(0x70));  // includes NaNs
  {
    auto file = Hdf5File::create(path);
    for (std::size_t i = 0; i < names<DType>().size(); ++i)
      file.create_dataset(text("group/", names<DType>()[i]), static_cast<DType>(i), {3, 4})
          .write(Extents{0, 0}, Extents{3, 4}, bits.data());
    file.close();
  }
  const auto file = Hdf5File::open(path);
  for (std::size_t i = 0; i < names<DType>().size(); ++i) {
    const auto dataset = file.dataset(text("group/", names<DType>()[i]));
    EXPECT_EQ(dataset.dtype(), static_cast<DType>(i));
    EXPECT_EQ(dataset.shape(), (Extents{3, 4}));
    std::vector<unsigned char> found(static_cast<std::size_t>(dataset.bytes()));
    dataset.read(Extents{0, 0}, Extents{3, 4}, found.data());
    EXPECT_EQ(std::memcmp(found.data(), bits.data(), found.size()), 0) << names<DType>()[i];
  }
  EXPECT_TRUE(file.has("group/fp32"));
  EXPECT_FALSE(file.has("group/fp8"));
  EXPECT_FALSE(file.has("nowhere/fp32"));
}

TEST(Hdf5, WritesBlocksToTheirOffsets) {
  const TemporaryFolder folder;
  auto file = Hdf5File::create(folder.file("a.h5"));
  auto dataset = file.create_dataset("x", DType::int32, {4, 5, 6});
  std::vector<std::int32_t> expected(4 * 5 * 6);
  std::iota(expected.begin(), expected.end(), 0);
  for (const std::int64_t half : {0, 3}) {  // the last axis is written in two parts
    std::vector<std::int32_t> part;
    for (int i = 0; i < 20; ++i)
      for (int j = 0; j < 3; ++j)
        part.push_back(expected[static_cast<std::size_t>(6 * i + half + j)]);
    dataset.write(Extents{0, 0, half}, Extents{4, 5, 3}, part.data());
  }
  std::vector<std::int32_t> found(expected.size());
  dataset.read(Extents{0, 0, 0}, dataset.shape(), found.data());
  EXPECT_EQ(found, expected);
  std::int32_t one = 0;
  dataset.read(Extents{2, 3, 4}, Extents{1, 1, 1}, &one);
  EXPECT_EQ(one, 2 * 30 + 3 * 6 + 4);
  EXPECT_THROW(dataset.read(Extents{2, 3, 4}, Extents{1, 1, 3}, found.data()), Error);
  EXPECT_THROW(dataset.read(Extents{2, 3}, Extents{1, 1}, found.data()), Error);
}

TEST(Hdf5, SplitsLargeTransfersWithoutChangingValues) {
  const TemporaryFolder folder;
  auto file = Hdf5File::create(folder.file("a.h5"));
  const Extents shape{1, 3, (5 << 20) + 1};  // 60 MiB: split along the second and the third axis
  auto dataset = file.create_dataset("x", DType::int32, shape);
  std::vector<std::int32_t> values(static_cast<std::size_t>(shape[1] * shape[2]));
  std::iota(values.begin(), values.end(), 7);
  dataset.write(Extents{0, 0, 0}, shape, values.data());
  std::vector<std::int32_t> found(values.size());
  dataset.read(Extents{0, 0, 0}, shape, found.data());
  EXPECT_TRUE(found == values);
}

TEST(Hdf5, FileOffsetLocatesTheBytes) {
  const TemporaryFolder folder;
  const auto path = folder.file("a.h5");
  for (const std::int64_t block : {0, 4096}) {
    std::int64_t offset = 0;
    const std::int64_t value = 0x1122334455667788;
    {
      auto file = Hdf5File::create(path, block);
      file.create_dataset("before", DType::fp64, {100});
      auto dataset = file.create_dataset("x", DType::int64, {1});
      dataset.write(Extents{0}, Extents{1}, &value);
      offset = dataset.file_offset();
      file.close();
    }
    const auto bytes = read_file(path);
    EXPECT_GE(offset, block);
    EXPECT_EQ(std::memcmp(bytes.data() + offset, &value, 8), 0);
  }
}

TEST(Hdf5, ScalarsAndEmptyArraysRoundTrip) {
  const TemporaryFolder folder;
  const auto path = folder.file("a.h5");
  const double pi = 3.14159;
  {
    auto file = Hdf5File::create(path);
    file.create_dataset("scalar", DType::fp64, {}).write(Extents{}, Extents{}, &pi);
    file.create_dataset("empty", DType::fp64, {3, 0}).write(Extents{0, 0}, Extents{3, 0}, nullptr);
    file.close();
  }
  const auto file = Hdf5File::open(path);
  double found = 0;
  file.dataset("scalar").read(Extents{}, Extents{}, &found);
  EXPECT_EQ(found, pi);
  EXPECT_EQ(file.dataset("empty").shape(), (Extents{3, 0}));
  EXPECT_EQ(file.dataset("empty").bytes(), 0);
}

TEST(Hdf5, AttributesRoundTrip) {
  const TemporaryFolder folder;
  const auto path = folder.file("a.h5");
  {
    auto file = Hdf5File::create(path);
    file.set_attribute("word", "Ruder");
    file.set_attribute("empty", "");
    file.set_attribute("number", std::int64_t{-5});
    file.close();
  }
  const auto file = Hdf5File::open(path);
  EXPECT_EQ(file.string_attribute("word"), "Ruder");
  EXPECT_EQ(file.string_attribute("empty"), "");
  EXPECT_EQ(file.integer_attribute("number"), -5);
  EXPECT_NE(message_of([&] { file.string_attribute("other"); }).find("'other'"), std::string::npos);
  EXPECT_THROW(file.integer_attribute("word"), Error);
  EXPECT_THROW(file.string_attribute("number"), Error);
}

TEST(Hdf5, ErrorsNameFileAndObject) {
  const TemporaryFolder folder;
  const auto missing = message_of([&] { Hdf5File::open(folder.file("missing.h5")); });
  EXPECT_NE(missing.find("missing.h5: cannot open"), std::string::npos) << missing;
  const auto text_file = folder.write("text.h5", "no HDF5");
  EXPECT_THROW(Hdf5File::open(text_file), Error);
  auto file = Hdf5File::create(folder.file("a.h5"));
  const auto absent = message_of([&] { file.dataset("absent"); });
  EXPECT_NE(absent.find("a.h5: dataset 'absent'"), std::string::npos) << absent;
  file.create_dataset("x", DType::fp32, {1});
  EXPECT_THROW(file.create_dataset("x", DType::fp32, {1}), Error);
}

}  // namespace
}  // namespace trireme::io
