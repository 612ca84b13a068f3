#include <trireme/hugging_face/mxfp4.hpp>

#include <trireme/hugging_face/config_json.hpp>
#include <trireme/hugging_face/convert.hpp>

#include "folders.hpp"

#include <cmath>
#include <filesystem>

/// MXFP4: decoding, and the import of files of GptOssForCausalLM.
namespace trireme::hugging_face {
namespace {

using namespace testing;
namespace fs = std::filesystem;

/// Value of 4 bits: sign, two bits of the exponent, one bit of the mantissa.
double element(int code) {
  const int exponent = code >> 1 & 3, mantissa = code & 1;
  const double size =
      exponent == 0 ? 0.5 * mantissa : (1 + 0.5 * mantissa) * std::ldexp(1.0, exponent - 1);
  return (code & 8) != 0 ? -size : size;
}

TEST(Mxfp4, DecodesAnyRangeExactly) {
  const std::int64_t blocks = 256;
  std::vector<std::uint8_t> codes, scales;
  for (int i = 0; i < blocks * 16; ++i)
    codes.push_back(static_cast<std::uint8_t>(i * 37 + i / 256));
  for (int i = 0; i < blocks; ++i) scales.push_back(static_cast<std::uint8_t>(i));
  const auto expected = [&](std::int64_t i) {
    const int byte = codes[static_cast<std::size_t>(i / 2)];
    const int exponent = scales[static_cast<std::size_t>(i / 32)] - 127;
    return std::ldexp(element(i % 2 == 0 ? byte & 15 : byte >> 4), exponent);
  };
  for (const auto& [first, count] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {0, 255 * 32}, {1, 1}, {31, 2}, {33, 100}, {254, 7000}}) {
    std::vector<double> out(static_cast<std::size_t>(count));
    decode_mxfp4(codes.data() + first / 2, scales.data() + first / 32, first, count, out.data());
    for (std::int64_t i = 0; i < count; ++i)
      ASSERT_EQ(out[static_cast<std::size_t>(i)], expected(first + i)) << first + i;
  }
  std::vector<double> last(32);
  decode_mxfp4(codes.data() + 255 * 16, scales.data() + 255, 255 * 32, 32, last.data());
  for (const double number : last) EXPECT_TRUE(std::isnan(number)) << "scale 255";
}

/// A tensor of any type.
struct Raw {
  std::string type;
  Extents shape;
  std::string bytes;
};
using RawTensors = std::map<std::string, Raw>;

void write_raw(const TemporaryFolder& folder, const RawTensors& tensors) {
  json header = json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const std::size_t end = data.size() + tensor.bytes.size();
    header[name] = {
        {"dtype", tensor.type}, {"shape", tensor.shape}, {"data_offsets", {data.size(), end}}};
    data += tensor.bytes;
  }
  const std::string words = header.dump();
  std::string length(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(words.size() >> (8 * i) & 0xff);
  folder.write(single_name, length + words + data);
}

/// A model of 2 layers with rows that MXFP4 can hold.
deck::ModelConfig packable() {
  deck::ModelConfig m = odd_llama(false, Family::gpt_oss);
  m.hidden = 96;
  m.explicit_head_size = 10;
  m.vocabulary = 19;
  m.experts.number = 3;
  m.feed_forward = m.experts.feed_forward = 64;
  return m;
}

std::string noise(const std::string& name, std::int64_t bytes, int low, int range) {
  std::string out;
  for (const std::uint32_t word : bits_of(name, bytes))
    out += static_cast<char>(low + static_cast<int>(word % static_cast<std::uint32_t>(range)));
  return out;
}

constexpr const char* experts = "model.layers.1.mlp.experts.";

/// The tensors of the model: zeros, except for experts in MXFP4.
RawTensors packed_tensors(const deck::ModelConfig& m) {
  RawTensors out;
  const std::int64_t E = m.experts.number, D = m.hidden, F = m.experts.feed_forward;
  const auto add_bytes = [&](const std::string& name, const Extents& shape, int low, int range) {
    out[name] = {"U8", shape, noise(name, checkpoint::volume(shape), low, range)};
  };
  for (const TensorPlan& tensor : plan_of(m)) {
    const bool up = tensor.name.ends_with(".gate_up_proj");
    if (!up && !tensor.name.ends_with(".down_proj")) {
      const auto bytes = static_cast<std::size_t>(4 * checkpoint::volume(tensor.shape));
      out[tensor.name] = {"F32", tensor.shape, std::string(bytes, '\0')};
      continue;
    }
    const std::int64_t rows = up ? 2 * F : D, row = up ? D : F;
    add_bytes(tensor.name + "_blocks", {E, rows, row / 32, 16}, 0, 256);
    add_bytes(tensor.name + "_scales", {E, rows, row / 32}, 100, 60);
  }
  return out;
}

/// An array of an imported checkpoint, as double.
std::vector<double> imported(const std::string& directory, const std::string& name, DType type) {
  const checkpoint::Reader reader(directory + "/step_00000000");
  for (const auto& array : reader.arrays()) {
    if (array.name != name) continue;
    std::vector<char> data(static_cast<std::size_t>(array.elements() * size_of(type)));
    reader.read(name, type, array.shape, data.data());
    std::vector<double> out;
    for (std::int64_t i = 0; i < array.elements(); ++i)
      out.push_back(number_at(type, data.data(), i));
    return out;
  }
  return {};
}

class Mxfp4Import : public ::testing::Test {
 protected:
  std::string refusal(DType type = DType::fp32, bool allow_nonfinite = false) {
    write_raw(folder_, tensors_);
    return message_of([&] {
      lines_ = import_weights(TensorFolder(folder_.path().string()), model_, type,
                              folder_.file("to"), {0, 0, "deck"}, allow_nonfinite);
    });
  }
  std::string& bytes(const std::string& name) { return tensors_.at(experts + name).bytes; }
  double packed_value(const std::string& name, std::int64_t i) {
    const auto byte = [&](const char* end, std::int64_t at) {
      return static_cast<unsigned char>(bytes(name + end)[static_cast<std::size_t>(at)]);
    };
    const int pair = byte("_blocks", i / 2);
    return std::ldexp(element(i % 2 == 0 ? pair & 15 : pair >> 4), byte("_scales", i / 32) - 127);
  }

  TemporaryFolder folder_;
  deck::ModelConfig model_ = packable();
  RawTensors tensors_ = packed_tensors(model_);
  std::vector<std::string> lines_;
};

TEST_F(Mxfp4Import, RowsOfGateAndUpAlternate) {
  const std::int64_t E = 3, D = 96, F = 64;
  ASSERT_EQ(refusal(), "no error");
  const auto gate_up = imported(folder_.file("to"), "layers.1.experts.gate_up", DType::fp32);
  const auto down = imported(folder_.file("to"), "layers.1.experts.down", DType::fp32);
  ASSERT_EQ(std::ssize(gate_up), E * 2 * F * D);
  ASSERT_EQ(std::ssize(down), E * D * F);
  for (std::int64_t e = 0; e < E; ++e)
    for (std::int64_t f = 0; f < F; ++f)
      for (std::int64_t d = 0; d < D; ++d) {
        for (const std::int64_t up : {0, 1})
          ASSERT_EQ(gate_up[static_cast<std::size_t>(((e * 2 + up) * F + f) * D + d)],
                    packed_value("gate_up_proj", (e * 2 * F + 2 * f + up) * D + d));
        ASSERT_EQ(down[static_cast<std::size_t>((e * D + d) * F + f)],
                  packed_value("down_proj", (e * D + d) * F + f));
      }
}

TEST_F(Mxfp4Import, EqualsTheImportOfTheSameNumbers) {
  ASSERT_EQ(refusal(DType::fp64), "no error");
  const TemporaryFolder plain;
  export_weights(checkpoint::Reader(folder_.file("to") + "/step_00000000"), model_, DType::fp64,
                 plain.path().string());
  const TensorFolder numbers(plain.path().string());
  EXPECT_EQ(numbers.tensors().size(), plan_of(model_).size()) << "without blocks and scales";
  import_weights(numbers, model_, DType::fp64, plain.file("to"), {0, 0, "deck"});
  for (const char* name : {"layers.0.experts.gate_up", "layers.1.experts.down"}) {
    const auto values = imported(folder_.file("to"), name, DType::fp64);
    EXPECT_EQ(imported(plain.file("to"), name, DType::fp64), values);
    EXPECT_NE(values, std::vector<double>(values.size())) << "not zeros";
  }
}

TEST_F(Mxfp4Import, NumbersThatAreNotFiniteOrTooLargeAreErrors) {
  bytes("down_proj_scales")[3] = static_cast<char>(255);
  expect_mentions(refusal(), {"model.safetensors", "layers.1.mlp.experts.down_proj_blocks",
                              "number 96 is nan", "--allow-nonfinite"});
  EXPECT_TRUE(fs::is_empty(folder_.file("to"))) << "no checkpoint";
  EXPECT_EQ(refusal(DType::fp32, true), "no error");
  ASSERT_EQ(lines_.size(), 1u);
  expect_mentions(lines_.front(), {"down_proj_blocks", "nan at 96"});
  EXPECT_TRUE(std::isnan(imported(folder_.file("to"), "layers.1.experts.down", DType::fp32)[96]));
  fs::remove_all(folder_.file("to"));
  bytes("down_proj_scales")[3] = static_cast<char>(254);
  bytes("down_proj_blocks")[48] = 0x17;  // 6 and 0.5
  expect_mentions(refusal(), {"down_proj_blocks", "too large for fp32"});
  EXPECT_EQ(refusal(DType::fp64), "no error");
  const auto down = imported(folder_.file("to"), "layers.1.experts.down", DType::fp64);
  EXPECT_EQ(down[96], 6 * 0x1p127);
  EXPECT_EQ(down[97], 0x1p126);
}

TEST_F(Mxfp4Import, UnexpectedTensorsAreListed) {
  const RawTensors right = tensors_;
  const auto refused = [&](const std::function<void(Raw&, Raw&)>& edit) {
    tensors_ = right;
    edit(tensors_.at(text(experts, "gate_up_proj_blocks")),
         tensors_.at(text(experts, "gate_up_proj_scales")));
    return refusal();
  };
  expect_mentions(refused([](Raw& blocks, Raw&) { blocks.type = "I8"; }),
                  {"gate_up_proj_blocks is I8 [3, 128, 3, 16], expected U8 [3, 128, 3, 16]"});
  expect_mentions(refused([](Raw& blocks, Raw&) {
                    blocks.shape = {3, 128, 48};
                  }),
                  {"gate_up_proj_blocks is U8 [3, 128, 48], expected U8 [3, 128, 3, 16]"});
  expect_mentions(refused([](Raw&, Raw& scales) {
                    scales.shape = {3, 3, 128};
                  }),
                  {"gate_up_proj_scales is U8 [3, 3, 128], expected U8 [3, 128, 3]"});
  tensors_ = right;
  tensors_.erase(text(experts, "down_proj_scales"));
  expect_mentions(refusal(), {text(experts, "down_proj_scales is missing")});
  tensors_ = right;
  tensors_.erase(text(experts, "down_proj_blocks"));
  expect_mentions(refusal(), {text(experts, "down_proj is missing"), "down_proj_scales, U8 ",
                              "is not a tensor of the model"});
  tensors_ = right;
  tensors_[text(experts, "down_proj")] = {"F32", {3, 64, 96}, std::string(4 * 3 * 64 * 96, '\0')};
  expect_mentions(refusal(), {"down_proj_blocks, U8 ", "is not a tensor of the model"});
  tensors_ = right;
  model_.hidden = 80;
  expect_mentions(refusal(), {"gate_up_proj_blocks is in MXFP4, but the model has rows of 80 "
                              "values, expected a multiple of 32"});
  EXPECT_FALSE(fs::exists(folder_.file("to")));
}

TEST_F(Mxfp4Import, OnlyExpertsOfItsFamilyArePacked) {
  const auto model = odd_llama(false, Family::mixtral);
  auto plan = plan_of(model);
  plan[2].name += "_blocks";
  write_zeros(folder_.path().string(), plan);
  expect_mentions(message_of([&] {
                    match(TensorFolder(folder_.path().string()), format_of(model.family), model);
                  }),
                  {"_blocks, F32 ", "is not a tensor of the model", " is missing"});
}

}  // namespace
}  // namespace trireme::hugging_face
