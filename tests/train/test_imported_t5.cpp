#include <trireme/hugging_face/config_json.hpp>
#include <trireme/hugging_face/weights.hpp>
#include <trireme/io/input_file.hpp>
#include <trireme/train/load.hpp>

#include "support/small_gpt.hpp"
#include "support/source_folder.hpp"
#include "support/temporary_folder.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

/// T5s that Hugging Face transformers has written, against what its models make of them:
/// tests/golden/t5_hugging_face/make.py.
namespace trireme::train {
namespace {

using namespace trireme::testing;
using P = model::Fp64;

/// Five layers of products of at most 15 terms of size 1: some 1000 ε = 2e-13 between two orders of
/// summation.
constexpr double t5_rounding = 1e-12;

/// A line of results.txt.
struct SpanSample {
  std::vector<std::int32_t> source, targets;
  double loss = 0;
};

std::vector<SpanSample> read_span_samples(const std::string& path) {
  std::vector<SpanSample> samples;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    SpanSample sample;
    std::istringstream words(line);
    std::string word;
    while (words >> word && word != "|") sample.source.push_back(std::stoi(word));
    while (words >> word && word != "|") sample.targets.push_back(std::stoi(word));
    words >> sample.loss;
    samples.push_back(sample);
  }
  return samples;
}

class ImportedT5 : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, ImportedT5, ::testing::Values("v1_0", "v1_1"),
                         [](const auto& model) { return std::string(model.param); });

TEST_P(ImportedT5, LossesMatchTransformers) {
  const TemporaryFolder folder;
  const auto golden = golden_file(text("t5_hugging_face/", GetParam()));
  const std::string config = golden + "/config.json";
  auto model = hugging_face::parse_config(io::read_text_file(config), config).model;
  const auto samples = read_span_samples(golden + "/results.txt");
  ASSERT_EQ(samples.size(), 4u);
  model.encoder.sequence = std::ssize(samples.front().source);
  model.sequence = std::ssize(samples.front().targets);
  const auto architecture = architecture::describe(model);
  hugging_face::import_weights(hugging_face::TensorFolder(golden), model, DType::fp64,
                               folder.path().string(), {0, 0, ""});
  model::Parameters<P> parameters(architecture, architecture::whole_model(architecture), false);
  const kernels::Handle handle;
  load_weights(handle, checkpoint::Reader(folder.file("step_00000000")), architecture, parameters);
  const WholeModel<P> stage(architecture, parameters, {1, 1, false, false});
  model::MicroContext context;
  context.sequence = model.sequence;
  for (const SpanSample& sample : samples) {
    std::vector<std::int32_t> tokens{0};
    tokens.insert(tokens.end(), sample.targets.begin(), sample.targets.end() - 1);
    set_values(stage.field(0, "source"), sample.source);
    set_values(stage.tokens(0), tokens);
    set_values(stage.targets(0), sample.targets);
    stage.zero_loss(handle);
    stage.evaluate(handle, 0, context, 1);
    const double loss = value_of(stage.loss()) / static_cast<double>(model.sequence);
    EXPECT_NEAR(loss, sample.loss, t5_rounding * sample.loss);
  }
}

}  // namespace
}  // namespace trireme::train
