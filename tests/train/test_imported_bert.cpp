#include <trireme/hugging_face/config_json.hpp>
#include <trireme/hugging_face/weights.hpp>
#include <trireme/io/input_file.hpp>
#include <trireme/train/load.hpp>

#include "support/small_gpt.hpp"
#include "support/source_folder.hpp"
#include "support/temporary_folder.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <optional>
#include <sstream>

/// BERTs that Hugging Face transformers has written, against what its models make of them:
/// tests/golden/bert_hugging_face/make.py.
namespace trireme::train {
namespace {

using namespace trireme::testing;
using P = model::Fp64;

/// Two layers of products of at most 12 terms of size 1: some 1000 ε = 2e-13 between two orders of
/// summation.
constexpr double bert_rounding = 1e-12;

/// A line of results.txt.
struct Sample {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> segments;
  std::vector<std::int32_t> rows;
  std::vector<std::int32_t> targets;
  std::int32_t pair = 0;
  double loss = 0;
  double pair_loss = 0;
};

std::vector<Sample> read_samples(const std::string& path) {
  std::vector<Sample> samples;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    Sample sample;
    std::istringstream words(line);
    std::string word;
    while (words >> word && word != "|") sample.tokens.push_back(std::stoi(word));
    std::size_t second = 0;
    words >> second >> word;
    for (std::size_t s = 0; s < sample.tokens.size(); ++s)
      sample.segments.push_back(s >= second ? 1 : 0);
    while (words >> word && word != "|") {
      sample.rows.push_back(std::stoi(word));
      words >> sample.targets.emplace_back();
    }
    words >> sample.pair >> word >> sample.loss >> sample.pair_loss;
    samples.push_back(sample);
  }
  return samples;
}

class ImportedBert : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, ImportedBert, ::testing::Values("pairs", "masked"),
                         [](const auto& model) { return std::string(model.param); });

TEST_P(ImportedBert, LossesMatchTransformers) {
  const TemporaryFolder folder;
  const auto golden = golden_file(text("bert_hugging_face/", GetParam()));
  const std::string config = golden + "/config.json";
  const auto model = hugging_face::parse_config(io::read_text_file(config), config).model;
  const auto architecture = architecture::describe(model);
  hugging_face::import_weights(hugging_face::TensorFolder(golden), model, DType::fp64,
                               folder.path().string(), {0, 0, ""});
  model::Parameters<P> parameters(architecture, architecture::whole_model(architecture), false);
  const kernels::Handle handle;
  load_weights(handle, checkpoint::Reader(folder.file("step_00000000")), architecture, parameters);
  const WholeModel<P> stage(architecture, parameters, {1, 1, false, false});
  model::MicroContext context;
  context.sequence = model.sequence;
  const auto samples = read_samples(golden + "/results.txt");
  ASSERT_EQ(samples.size(), 4u);
  for (Sample sample : samples) {
    ASSERT_EQ(std::ssize(sample.tokens), model.sequence);
    ASSERT_EQ(std::ssize(sample.rows), model.targets());
    set_values(stage.tokens(0), sample.tokens);
    set_values(stage.field(0, "segments"), sample.segments);
    set_values(stage.targets(0), sample.targets);
    if (model.has_sentence_head()) {
      sample.rows.push_back(0);
      set_values(stage.field(0, "pairs"), std::vector<std::int32_t>{sample.pair});
    }
    set_values(stage.field(0, "rows"), sample.rows);
    stage.zero_loss(handle);
    stage.evaluate(handle, 0, context, 1);
    const double loss = value_of(stage.loss()) / static_cast<double>(model.targets());
    EXPECT_NEAR(loss, sample.loss, bert_rounding * sample.loss);
    if (model.has_sentence_head()) {
      EXPECT_NEAR(value_of(stage.loss(1)), sample.pair_loss, bert_rounding * sample.pair_loss);
    }
  }
}

}  // namespace
}  // namespace trireme::train
