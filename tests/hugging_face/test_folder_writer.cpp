#include <trireme/hugging_face/folder_writer.hpp>

#include "support.hpp"

#include <algorithm>
#include <filesystem>

namespace trireme::hugging_face {
namespace {

using namespace testing;
namespace fs = std::filesystem;

std::vector<std::string> names_in(const TemporaryFolder& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder.path()))
    names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

const std::vector<TensorPlan> three_tensors{{"a", DType::fp32, {5}},  // 20 bytes
                                            {"b", DType::bf16, {3, 2}},
                                            {"empty", DType::fp32, {0}},
                                            {"large", DType::fp64, {7}},
                                            {"c", DType::fp32, {2}}};
constexpr std::int64_t plan_bytes = 20 + 12 + 0 + 56 + 8;

void write(const std::string& folder, std::int64_t most_bytes, char with = 'x') {
  FolderWriter writer(folder, three_tensors, most_bytes);
  const std::string data(plan_bytes, with);
  writer.append(data.data(), 50);  // across tensors and files
  writer.append(data.data(), plan_bytes - 50);
  writer.commit();
}

TEST(FolderWriter, ParsesSizesLikeHuggingFace) {
  EXPECT_EQ(parse_size("5GB"), 5'000'000'000);
  EXPECT_EQ(parse_size("5 GB"), 5'000'000'000);
  EXPECT_EQ(parse_size("200MiB"), 200 << 20);
  EXPECT_EQ(parse_size("3KB"), 3000);
  EXPECT_EQ(parse_size("1TiB"), std::int64_t{1} << 40);
  EXPECT_EQ(parse_size("77"), 77);
  EXPECT_EQ(parse_size("77B"), 77);
  for (const char* wrong : {"", "GB", "0GB", "-5GB", "5XB", "5G", "1.5GB", "5GB!", "9999999999TB",
                            "99999999999999999999"})
    EXPECT_EQ(parse_size(wrong), std::nullopt) << wrong;
}

TEST(FolderWriter, FillsShardsAndIsolatesLargeTensors) {
  const auto sizes = [](std::int64_t most) {
    std::vector<std::int64_t> bytes;
    std::size_t next = 0;
    for (const ShardPlan& shard : plan_shards(three_tensors, most)) {
      EXPECT_EQ(shard.first, next);
      EXPECT_GT(shard.last, shard.first);
      next = shard.last;
      bytes.push_back(shard.bytes);
    }
    EXPECT_EQ(next, three_tensors.size());
    return bytes;
  };
  EXPECT_EQ(sizes(0), (std::vector<std::int64_t>{96}));
  EXPECT_EQ(sizes(96), (std::vector<std::int64_t>{96}));
  EXPECT_EQ(sizes(95), (std::vector<std::int64_t>{88, 8}));
  EXPECT_EQ(sizes(32), (std::vector<std::int64_t>{32, 56, 8}));
  EXPECT_EQ(sizes(1), (std::vector<std::int64_t>{20, 12, 56, 8}));
}

TEST(FolderWriter, WritesFilesAndIndexForTransformers) {
  const TemporaryFolder folder;
  write(folder.path().string(), 32);
  EXPECT_EQ(names_in(folder),
            (std::vector<std::string>{
                "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                "model-00003-of-00003.safetensors", "model.safetensors.index.json"}));
  const std::string index = read_file(folder.file(index_name));
  expect_mentions(index, {"\"total_size\": 96", "\"total_parameters\": 20",
                          "\"large\": \"model-00002-of-00003.safetensors\""});
  const TensorFolder read(folder.path().string());
  EXPECT_EQ(read.path(), folder.file(index_name));
  ASSERT_EQ(read.tensors().size(), three_tensors.size());
  std::int64_t bytes = 0;
  for (const StoredTensor& tensor : read.tensors()) {
    EXPECT_EQ(tensor.file->metadata().at("format"), "pt");
    std::string data(static_cast<std::size_t>(tensor.info->bytes), '\0');
    tensor.read(0, tensor.info->bytes, data.data());
    EXPECT_EQ(data, std::string(data.size(), 'x')) << tensor.info->name;
    bytes += tensor.info->bytes;
  }
  EXPECT_EQ(bytes, plan_bytes);
}

TEST(FolderWriter, ReplacesAModelCompletely) {
  const TemporaryFolder folder;
  for (const std::int64_t most : {32, 0, 95, 1, 0}) {
    write(folder.path().string(), most, static_cast<char>('a' + most % 26));
    const TensorFolder read(folder.path().string());
    char first = 0;
    read.tensors().front().read(0, 1, &first);
    EXPECT_EQ(first, static_cast<char>('a' + most % 26));
    EXPECT_EQ(weight_files(folder.path().string()).size(), names_in(folder).size());
  }
  EXPECT_EQ(names_in(folder), std::vector<std::string>{single_name});
}

TEST(FolderWriter, PublishesNothingUntilComplete) {
  const TemporaryFolder folder;
  write(folder.path().string(), 0, 'o');
  for (const std::int64_t most : {0, 32, 1}) {
    FolderWriter writer(folder.path().string(), three_tensors, most);
    const std::string data(plan_bytes, 'n');
    writer.append(data.data(), plan_bytes - 1);
    expect_mentions(message_of([&] { writer.commit(); }), {"planned"});
    expect_mentions(message_of([&] { writer.append(data.data(), 2); }), {"planned"});
  }
  EXPECT_EQ(names_in(folder), std::vector<std::string>{single_name});
  const TensorFolder read(folder.path().string());
  char first = 0;
  read.tensors().front().read(0, 1, &first);
  EXPECT_EQ(first, 'o');
}

TEST(FolderWriter, RejectsTooManyFilesBeforeWriting) {
  const TemporaryFolder folder;
  const std::vector<TensorPlan> many(501, {"t", DType::fp32, {2}});
  expect_mentions(message_of([&] { FolderWriter(folder.path().string(), many, 8); }),
                  {"at most 8 bytes would be 501", "500", "larger size"});
  EXPECT_TRUE(names_in(folder).empty());
}

}  // namespace
}  // namespace trireme::hugging_face
