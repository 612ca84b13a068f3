#include "support.hpp"

#include <ctime>
#include <filesystem>

namespace trireme::hugging_face {
namespace {

using namespace testing;

std::string with_length(const std::string& header, const std::string& data = "") {
  std::string out(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) out[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  return out + header + data;
}

class Safetensors : public ::testing::Test {
 protected:
  /// The error for a file of these bytes.
  std::string refusal(const std::string& bytes) {
    const auto path = folder_.write("model.safetensors", bytes);
    return message_of([&] { SafetensorsFile file(path); });
  }
  /// The error for a header before 16 bytes of data.
  std::string refused_header(const std::string& header) {
    return refusal(with_length(header, std::string(16, 'x')));
  }

  TemporaryFolder folder_;
};

/// Processor time, because tests run beside others. Quadratic reading took 100 s.
/// Four times as many tensors take about four times as long; sixteen times would be quadratic.
TEST_F(Safetensors, OpensManyTensorsInLinearTime) {
  const auto seconds = [&](int number) {
    std::string header = "{";
    for (int i = 0; i < number; ++i)
      header +=
          text(i == 0 ? "" : ",", "\"layers.", i, ".weight\":{\"dtype\":\"U8\",\"shape\":[1],",
               "\"data_offsets\":[", i, ",", i + 1, "]}");
    const auto path = folder_.write(
        "model.safetensors",
        with_length(header + "}", std::string(static_cast<std::size_t>(number), 'x')));
    const std::clock_t begin = std::clock();
    const SafetensorsFile file(path);
    EXPECT_EQ(std::ssize(file.tensors()), number);
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  };
  seconds(25'000);  // memory is touched once
  EXPECT_LT(seconds(100'000), 10 * seconds(25'000));
}

TEST_F(Safetensors, RoundTripsEveryTypeBitForBit) {
  const auto path = folder_.file("all.safetensors");
  const std::vector<TensorPlan> plan{{"a", DType::fp64, {3, 5}},
                                     {"b.weight", DType::fp32, {7}},
                                     {"c", DType::bf16, {2, 0}},
                                     {"d", DType::fp16, {}},
                                     {"quote\" and \xc3\xa9", DType::bf16, {11}}};
  const auto bits = bits_of("data", 100);
  const auto* bytes = reinterpret_cast<const char*>(bits.data());
  constexpr std::int64_t total = 3 * 5 * 8 + 7 * 4 + 0 + 2 + 22;
  SafetensorsWriter writer(path, plan);
  writer.append(bytes, 100);
  writer.append(bytes + 100, total - 100);
  writer.commit();

  const SafetensorsFile file(path);
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}}));
  ASSERT_EQ(file.tensors().size(), plan.size());
  EXPECT_EQ(file.find("a")->begin % 8, 0);
  std::string all;
  for (const TensorPlan& planned : plan) {
    const TensorInfo* tensor = file.find(planned.name);
    ASSERT_NE(tensor, nullptr) << planned.name;
    EXPECT_EQ(tensor->dtype(), planned.dtype);
    EXPECT_EQ(tensor->shape, planned.shape);
    std::string part(static_cast<std::size_t>(tensor->bytes), '\0');
    file.read(*tensor, 0, tensor->bytes, part.data());
    all += part;
  }
  EXPECT_EQ(all, std::string(bytes, total));
  EXPECT_EQ(file.find("e"), nullptr);
}

TEST_F(Safetensors, PublishesAFileOnlyWhenComplete) {
  const auto path = folder_.file("some.safetensors");
  {
    SafetensorsWriter writer(path, {{"a", DType::fp32, {4}}});
    writer.append("1234567", 7);
    expect_mentions(message_of([&] { writer.commit(); }), {path, "planned"});
    expect_mentions(message_of([&] { writer.append("0123456789", 10); }), {"9 were planned"});
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
  EXPECT_NE(message_of([&] {
              SafetensorsWriter(path, {{"a", DType::fp32, {}}, {"a", DType::fp32, {}}});
            }).find("'a'"),
            std::string::npos);
}

TEST_F(Safetensors, ListsUnsupportedTypesWithoutAType) {
  const auto path = folder_.write(
      "b.safetensors",
      with_length(R"({"m":{"dtype":"BOOL","shape":[2,2],"data_offsets":[0,4]}})", "abcd"));
  const SafetensorsFile file(path);
  EXPECT_FALSE(file.find("m")->dtype());
}

TEST_F(Safetensors, RejectsDamagedHeadersWithTheReason) {
  const std::string good = R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})";
  EXPECT_EQ(refused_header(good), "no error");
  EXPECT_EQ(refused_header(good + "   "), "no error");
  EXPECT_EQ(refused_header(R"({"__metadata__":null,)" + good.substr(1)), "no error");
  expect_mentions(refusal(with_length(good, std::string(17, 'x'))), {"end at byte 16 of 17"});
  expect_mentions(refusal("abc"), {"model.safetensors", "3 bytes"});
  expect_mentions(refusal(std::string(8, '\0') + "{}"), {"header of 0 bytes"});
  expect_mentions(refusal(std::string(8, '\xff') + "{}"),
                  {"18446744073709551615", "not a safetensors file"});
  expect_mentions(refusal(with_length(good).substr(0, 40)), {"header of 55 bytes", "32"});
  const std::map<std::string, std::string> headers{
      {R"([1])", "begin with '{'"},
      {R"( {"a":1})", "begin with '{'"},
      {R"({"a":)", "not JSON"},
      {"{\"\xff\":1}", "not JSON"},
      {R"({"a":1})", "expected an object"},
      {R"({"a":{}})", "has no dtype"},
      {R"({"a":{"dtype":7}})", "dtype is number"},
      {R"({"a":{"dtype":"F33","shape":[4],"data_offsets":[0,16]}})", "'F33' is unknown"},
      {R"({"a":{"dtype":"F32","shape":4,"data_offsets":[0,16]}})", "shape is not a list"},
      {R"({"a":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}})", "shape holds -4"},
      {R"({"a":{"dtype":"F32","shape":[4.0],"data_offsets":[0,16]}})", "shape holds 4.0"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,16]}})",
       "more than 2^60"},
      {R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,16]}})",
       "shape holds 18446744073709551615"},
      {R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16,16]}})", "3 numbers"},
      {R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[16,0]}})", "[16, 0]"},
      {R"({"a":{"dtype":"F32","shape":[5],"data_offsets":[0,20]}})", "exceed the 16 bytes"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,16]}})", "takes 12"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})", "end at byte 12"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[4,16]}})", "after a gap"},
      {R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},)"
       R"("b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
       "within the previous tensor"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
       R"("a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
       "'a' appears twice"},
      {R"({"a":{"dtype":"F32","dtype":"F32","shape":[4],"data_offsets":[0,16]}})", "twice"},
      {R"({"a":{"dtype":"F32","shape":[[[[4]]]],"data_offsets":[0,16]}})", "nested deeper"},
      {R"({"a":{"dtype":"F32","shape":[1e-400],"data_offsets":[0,16]}})",
       "holds the number 1e-400, which is too close to 0"},
      {R"({"a":{"dtype":"F32","shape":[1e400],"data_offsets":[0,16]}})",
       "the header is not JSON: column 30: the number 1e400 is too large"},
      {R"({"__metadata__":{"format":1}})", "'format' is not a string"},
      {R"({"__metadata__":[]})", "__metadata__ is array, expected an object of strings or null"},
      {R"({"__metadata__":{"format":null}})", "'format' is not a string"},
      {"{}", "end at byte 0"}};
  for (const auto& [header, reason] : headers)
    expect_mentions(refused_header(header), {"model.safetensors", reason});
}

TEST_F(Safetensors, RejectsMutatedFilesOrReadsWithinBounds) {
  const auto path = folder_.file("good.safetensors");
  SafetensorsWriter writer(path, {{"a", DType::fp32, {2, 3}}, {"b", DType::bf16, {5}}});
  writer.append(std::string(34, 'd').data(), 34);
  writer.commit();
  const std::string good = read_file(path);
  std::uint64_t state = 88172645463325252ull;
  const auto random = [&](std::size_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::size_t>(state >> 33) % n;
  };
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = good;
    for (std::size_t n = random(3) + 1; n-- > 0;) {
      const std::size_t at = random(bytes.size());
      switch (random(4)) {
        case 0:
          bytes[at] = static_cast<char>(bytes[at] ^ 1 << random(8));
          break;
        case 1:
          bytes[at] = "0123456789{}[],:\""[random(17)];
          break;
        case 2:
          bytes.erase(at, random(9));
          break;
        default:
          bytes.insert(at, bytes.substr(random(bytes.size()), random(9)));
      }
      if (bytes.empty()) bytes = "x";
    }
    std::filesystem::remove(path);
    folder_.write("good.safetensors", bytes);
    try {
      const SafetensorsFile file(path);
      for (const TensorInfo& tensor : file.tensors()) {
        std::string data(static_cast<std::size_t>(tensor.bytes), '\0');
        file.read(tensor, 0, tensor.bytes, data.data());
      }
    } catch (const Error& error) {
      ++refused;
      EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
    }
  }
  EXPECT_GT(refused, 1500) << "most of the file is its header";
}

}  // namespace
}  // namespace trireme::hugging_face
