#include <trireme/checkpoint/folders.hpp>
#include <trireme/checkpoint/writer.hpp>
#include <trireme/hugging_face/config_json.hpp>
#include <trireme/hugging_face/weights.hpp>
#include <trireme/io/input_file.hpp>
#include <trireme/model/decoder.hpp>
#include <trireme/train/load.hpp>

#include "support/messages.hpp"
#include "support/small_gpt.hpp"
#include "support/source_folder.hpp"
#include "support/training.hpp"
#include "support/whole_arrays.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>

/// Weights that Hugging Face transformers has written, against what its models make of them:
/// make.py of gpt2_hugging_face, llama_hugging_face and decoders_hugging_face in tests/golden.
namespace trireme::train {
namespace {

using namespace trireme::testing;
using P = model::Fp64;

constexpr int shown_logits = 8;

/// Two layers of products of at most 48 terms of size 1: some 1000 ε = 2e-13 between two orders of
/// summation.
constexpr double decoder_rounding = 1e-12;

struct ModelResults {
  std::vector<std::vector<std::int32_t>> tokens;  ///< of each sequence, one more than the model's
  std::vector<double> losses;
  std::vector<double> logits;
};

ModelResults read_model_results(const std::string& path) {
  ModelResults out;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string word;
    if (line.starts_with("logits")) {
      words >> word;
      for (double x = 0; words >> x;) out.logits.push_back(x);
      continue;
    }
    out.tokens.emplace_back();
    while (words >> word && word != "|") out.tokens.back().push_back(std::stoi(word));
    words >> out.losses.emplace_back();
  }
  return out;
}

class Imported : public ::testing::TestWithParam<const char*> {
 protected:
  Imported() {
    const std::string golden = golden_file(GetParam());
    const std::string config = golden + "/config.json";
    model_ = hugging_face::parse_config(io::read_text_file(config), config).model;
    results_ = read_model_results(golden + "/results.txt");
    model_.sequence = std::ssize(results_.tokens.front()) - 1;
    architecture_ = architecture::describe(model_);
    const hugging_face::TensorFolder weights(golden);
    hugging_face::import_weights(weights, model_, DType::fp64, folder_.path().string(), {0, 0, ""});
    parameters_.emplace(architecture_, architecture::whole_model(architecture_), false);
    load_weights(handle_, checkpoint::Reader(folder_.file("step_00000000")), architecture_,
                 *parameters_);
  }

  TemporaryFolder folder_;
  deck::ModelConfig model_;
  architecture::Architecture architecture_;
  ModelResults results_;
  kernels::Handle handle_;
  std::optional<model::Parameters<P>> parameters_;
};

INSTANTIATE_TEST_SUITE_P(
    Models, Imported,
    ::testing::Values("gpt2_hugging_face/tied", "gpt2_hugging_face/untied",
                      "llama_hugging_face/tied", "llama_hugging_face/untied",
                      "decoders_hugging_face/qwen2_tied", "decoders_hugging_face/qwen2_untied",
                      "decoders_hugging_face/qwen3_tied", "decoders_hugging_face/qwen3_untied",
                      "decoders_hugging_face/mistral_tied", "decoders_hugging_face/mistral_untied",
                      "decoders_hugging_face/gemma", "decoders_hugging_face/gemma2",
                      "decoders_hugging_face/gemma3", "decoders_hugging_face/llama_linear",
                      "decoders_hugging_face/llama_dynamic", "decoders_hugging_face/llama_yarn",
                      "decoders_hugging_face/llama_llama3", "decoders_hugging_face/olmo2",
                      "decoders_hugging_face/mixtral", "decoders_hugging_face/qwen3_moe",
                      "decoders_hugging_face/olmoe", "decoders_hugging_face/qwen2_moe",
                      "decoders_hugging_face/gpt_oss", "decoders_hugging_face/deepseek_v3"),
    [](const auto& model) {
      std::string name = model.param;
      std::ranges::replace(name, '/', '_');
      return name;
    });

TEST_P(Imported, LossesMatchTransformers) {
  WholeModel<P> stage(architecture_, *parameters_, {1, 1, false, false});
  model::MicroContext context;
  context.sequence = model_.sequence;
  ASSERT_EQ(results_.tokens.size(), 4u);
  for (std::size_t i = 0; i < results_.tokens.size(); ++i) {
    const auto& tokens = results_.tokens[i];
    ASSERT_EQ(std::ssize(tokens), model_.sequence + 1);
    set_values(stage.tokens(0), std::vector<std::int32_t>(tokens.begin(), tokens.end() - 1));
    set_values(stage.targets(0), std::vector<std::int32_t>(tokens.begin() + 1, tokens.end()));
    stage.zero_loss(handle_);
    stage.evaluate(handle_, 0, context, 1);
    const double loss = value_of(stage.loss()) / static_cast<double>(model_.sequence);
    EXPECT_NEAR(loss, results_.losses[i], decoder_rounding * results_.losses[i])
        << "sequence " << i;
  }
}

TEST_P(Imported, LogitsMatchTransformers) {
  const auto alone = grid::Communicator::self();
  model::Decoder<P> decoder(architecture_, *parameters_, *alone, {1, 1});
  for (std::int32_t i = 0; i < model_.sequence; ++i)
    decoder.run(
        handle_,
        std::vector<model::CachedToken>{{0, results_.tokens[0][static_cast<std::size_t>(i)], i}},
        model::PassWidth::narrow, i + 1 == model_.sequence);
  fence(handle_, "the test reads logits");
  ASSERT_EQ(results_.logits.size(), static_cast<std::size_t>(shown_logits));
  const View1<double> logits(decoder.logits().data(), decoder.logits().extent(1));
  for (int i = 0; i < shown_logits; ++i)
    EXPECT_NEAR(value_of(logits, i), results_.logits[static_cast<std::size_t>(i)],
                decoder_rounding);
}

/// A checkpoint of those arrays of an engine on one rank whose names are wanted.
std::string write_some(const TemporaryFolder& folder, std::int64_t step, Engine& engine,
                       const std::function<bool(const std::string&)>& wanted) {
  auto slices = engine.share();
  std::erase_if(slices, [&](const auto& slice) { return !wanted(slice.name); });
  const std::string directory = folder.path().string();
  const auto shard = checkpoint::write_shard(checkpoint::begin(directory, step), 0, slices);
  checkpoint::commit(directory, {step, 4 * step, "deck"}, {shard}, {});
  return folder.file(checkpoint::folder_name(step));
}

TEST(WeightsOnly, StartWithAZeroOptimizerOnlyAtStepZero) {
  const TemporaryFolder folder;
  const data::TokenFile tokens(write_tokens(folder, 4000));
  Rig rig(small_config(4, 2, 1), tokens);
  rig.run(1, 3);
  const auto is_weight = [](const std::string& name) { return !name.starts_with("optimizer."); };
  const auto at_zero = write_some(folder, 0, *rig.engine, is_weight);
  rig.engine->load(checkpoint::Reader(at_zero));  // in the place of moments that are not zero
  std::size_t moments = 0;
  const auto slices = rig.engine->share();
  for (const auto& slice : slices) {
    if (is_weight(slice.name)) continue;
    ++moments;
    EXPECT_TRUE(std::ranges::all_of(bytes_of(slice), [](char byte) { return byte == 0; }))
        << slice.name;
  }
  EXPECT_EQ(3 * moments, 2 * slices.size());

  const auto later = write_some(folder, 3, *rig.engine, is_weight);
  EXPECT_NE(message_of([&] {
              rig.engine->load(checkpoint::Reader(later));
            }).find("holds no array 'optimizer.first_moment."),
            std::string::npos);
  const TemporaryFolder other;
  const auto half = write_some(other, 0, *rig.engine, [](const std::string& name) {
    return !name.starts_with("optimizer.second");
  });
  EXPECT_NE(message_of([&] {
              rig.engine->load(checkpoint::Reader(half));
            }).find("holds no array 'optimizer.second_moment."),
            std::string::npos);
}

}  // namespace
}  // namespace trireme::train
