#include <trireme/hugging_face/folder_writer.hpp>

#include "support.hpp"

#include <filesystem>

namespace trireme::hugging_face {
namespace {

using namespace testing;
namespace fs = std::filesystem;

const std::string first = "model-00001-of-00003.safetensors";
const std::string second = "model-00002-of-00003.safetensors";
const std::string third = "model-00003-of-00003.safetensors";

/// A model in three shards.
class TensorFolders : public ::testing::Test {
 protected:
  TensorFolders() {
    const std::vector<TensorPlan> plan{
        {"a", DType::fp32, {2, 3}}, {"b", DType::bf16, {5}}, {"c", DType::fp64, {4}}};
    FolderWriter writer(folder_.path().string(), plan, 1);
    const std::string data(66, 'd');
    writer.append(data.data(), 66);
    writer.commit();
    index_ = read_file(folder_.file(index_name));
  }

  std::string refusal() {
    return message_of([&] { TensorFolder(folder_.path().string()); });
  }
  void replace(const std::string& name, const std::string& content) {
    fs::remove(folder_.file(name));
    folder_.write(name, content);
  }
  /// The error for the index with `from` replaced by `to`.
  std::string refused_index(const std::string& from, const std::string& to) {
    std::string content = index_;
    const auto at = content.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    replace(index_name, content.replace(at, from.size(), to));
    return refusal();
  }

  TemporaryFolder folder_;
  std::string index_;
};

TEST_F(TensorFolders, RejectAFolderWithoutExactlyOneModel) {
  EXPECT_EQ(refusal(), "no error");
  fs::copy_file(folder_.file(first), folder_.file(single_name));
  expect_mentions(refusal(),
                  {"holds model.safetensors and model.safetensors.index.json", "remove"});
  fs::remove(folder_.file(single_name));
  fs::remove(folder_.file(index_name));
  expect_mentions(refusal(), {"model.safetensors: no such file", index_name, "save_pretrained"});
  expect_mentions(message_of([&] { TensorFolder(folder_.file("nowhere")); }), {"no such file"});
}

TEST_F(TensorFolders, ReportMissingTruncatedAndForeignShards) {
  const std::string content = read_file(folder_.file(second));
  fs::remove(folder_.file(second));
  expect_mentions(refusal(), {index_name, "names 3 files", second + " is missing", "copy"});
  replace(second, content.substr(0, content.size() - 1));
  expect_mentions(refusal(), {second, "bytes of data", "again"});
  replace(second, content.substr(0, 20));
  expect_mentions(refusal(), {second, "header"});
  replace(second, content);
  EXPECT_EQ(refusal(), "no error");
  folder_.write("model-00004-of-00004.safetensors", content);
  expect_mentions(refusal(), {"model-00004-of-00004.safetensors is not in the index"});
  fs::remove(folder_.file("model-00004-of-00004.safetensors"));
  folder_.write("adapter.safetensors", "of another program");
  EXPECT_EQ(refusal(), "no error");
}

TEST_F(TensorFolders, RejectTensorsThatContradictTheIndex) {
  const std::string content = read_file(folder_.file(second));
  replace(second, read_file(folder_.file(first)));  // "a" twice, "b" nowhere
  expect_mentions(refusal(), {"tensor 'a' is in " + second + ", but the index names " + first,
                              "tensor 'b' is not in " + second});
  replace(second, content);
  expect_mentions(refused_index("\"b\": \"" + second, "\"b\": \"" + third),
                  {second + " is not in the index"});
  expect_mentions(refused_index("\"b\":", "\"e\":"),
                  {"tensor 'b' of " + second + " is not in the index", "tensor 'e' is not in"});
}

TEST_F(TensorFolders, RejectDamagedIndicesWithTheReason) {
  EXPECT_EQ(refused_index("\"total_size\": 66", "\"total_size\": -1.5, \"x\": [{}]"), "no error")
      << "metadata is ignored";
  const std::map<std::string, std::string> files{{"../" + first, "expected the name of a"},
                                                 {"/etc/" + first, "expected the name of a"},
                                                 {"." + first, "expected the name of a"},
                                                 {"model.bin", "expected the name of a"},
                                                 {".safetensors", "expected the name of a"},
                                                 {"a\\u0000.safetensors", "expected the name of a"},
                                                 {"other.safetensors", "is missing"}};
  for (const auto& [file, reason] : files)
    expect_mentions(refused_index(first, file), {index_name, reason});
  expect_mentions(refused_index("\"" + first + "\"", "7"), {"weight_map 'a' is 7"});
  expect_mentions(refused_index("\"b\":", "\"a\":"), {"'a' appears twice"});
  expect_mentions(refused_index("weight_map", "map"), {"has no weight_map"});
  expect_mentions(refused_index("{", "["), {"not JSON"});
  for (const char* content : {"", "[]", "7", "null", "{}", R"({"weight_map": {}})",
                              R"({"weight_map": []})", "{\"\xff\": 1}"}) {
    replace(index_name, content);
    expect_mentions(refusal(), {index_name});
  }
  replace(index_name, std::string(100'000, '['));
  expect_mentions(refusal(), {index_name, "nested deeper"});
}

TEST_F(TensorFolders, RejectMutatedFilesOrReadWithinBounds) {
  std::uint64_t state = 88172645463325252ull;
  const auto random = [&](std::size_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::size_t>(state >> 33) % n;
  };
  const std::string shard = read_file(folder_.file(second));
  int refused = 0;
  constexpr int rounds = 2000;
  for (int i = 0; i < rounds; ++i) {
    const bool of_index = random(4) != 0;
    std::string bytes = of_index ? index_ : shard;
    for (std::size_t n = random(3) + 1; n-- > 0;) {
      const std::size_t at = random(bytes.size());
      switch (random(4)) {
        case 0:
          bytes[at] = static_cast<char>(bytes[at] ^ 1 << random(8));
          break;
        case 1:
          bytes[at] = "0123456789{}[],:\"/."[random(19)];
          break;
        case 2:
          bytes.erase(at, random(40));
          break;
        default:
          bytes.insert(at, bytes.substr(random(bytes.size()), random(40)));
      }
      if (bytes.empty()) bytes = "x";
    }
    replace(of_index ? index_name : second, bytes);
    try {
      const TensorFolder folder(folder_.path().string());
      for (const StoredTensor& tensor : folder.tensors()) {
        std::string data(static_cast<std::size_t>(tensor.info->bytes), '\0');
        tensor.read(0, tensor.info->bytes, data.data());
      }
    } catch (const Error& error) {
      ++refused;
      EXPECT_NE(std::string(error.what()).find(folder_.path().string()), std::string::npos)
          << error.what();
    }
    replace(index_name, index_);
    replace(second, shard);
  }
  EXPECT_GT(refused, rounds / 2) << "most of the bytes are names";
}

}  // namespace
}  // namespace trireme::hugging_face
