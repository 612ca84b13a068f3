#include <trireme/hugging_face/config_json.hpp>
#include <trireme/hugging_face/weights.hpp>
#include <trireme/io/input_file.hpp>
#include <trireme/train/load.hpp>

#include "support/runtime.hpp"
#include "support/small_gpt.hpp"
#include "support/source_folder.hpp"
#include "support/temporary_folder.hpp"
#include "train/t5_samples.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

/// T5s that Hugging Face transformers has written, against what its models make of them:
/// tests/golden/t5_hugging_face/make.py and tests/golden/t5_generate/make.py.
namespace trireme::train {
namespace {

using namespace trireme::testing;
using P = model::Fp64;

/// Five layers of products of at most 15 terms of size 1: some 1000 ε = 2e-13 between two orders of
/// summation.
constexpr double t5_rounding = 1e-12;

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

/// The lines of t5_generate's files.
std::vector<GreedyText> read_greedy_texts(const std::string& path) {
  std::vector<GreedyText> texts;
  for (const SpanSample& sample : read_span_samples(path))
    texts.push_back({sample.source, sample.targets});
  return texts;
}

/// Under mpiexec, on all tensor and pipeline sizes of so many ranks.
TEST_P(ImportedT5, GreedyTextsMatchTransformers) {
  constexpr std::int32_t end_token = 1;
  constexpr std::int64_t tokens = 24;
  const TemporaryFolder folder;
  const auto golden = golden_file(text("t5_hugging_face/", GetParam()));
  const std::string path = golden + "/config.json";
  deck::Config config;
  config.model = hugging_face::parse_config(io::read_text_file(path), path).model;
  hugging_face::import_weights(hugging_face::TensorFolder(golden), config.model, DType::fp64,
                               folder.path().string(), {0, 0, ""});
  const checkpoint::Reader reader(folder.file("step_00000000"));
  const auto texts = read_greedy_texts(golden_file(text("t5_generate/", GetParam(), ".txt")));
  ASSERT_EQ(texts.size(), 6u);
  config.precision.compute = DType::fp64;
  config.data.start_token = 0;
  config.parallel.data = 1;
  const std::int64_t ranks = runtime().ranks();
  int runs = 0;
  for (std::int64_t tensor = 1; tensor <= std::min<std::int64_t>(ranks, 3); ++tensor)
    // The encoder's longest source fits a short pass, or not.
    for (const auto& [batch, longest] :
         std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 13}, {4, 100}, {7, 13}}) {
      if (ranks % tensor != 0) continue;
      SCOPED_TRACE(text(tensor, " tensor ranks of ", ranks, ", ", batch, " texts, ", longest));
      config.model.encoder.sequence = longest;
      config.parallel.tensor = tensor;
      config.parallel.pipeline = ranks / tensor;
      const auto architecture = architecture::describe(config.model);
      grid::Grid grid(runtime().world(),
                      layout::ProcessGrid(config.parallel.axes(), runtime().ranks()),
                      config.parallel.stage_map());
      const auto generator = make_generator(config, architecture, grid, {batch, tokens});
      generator->load(reader);
      GreedyTexts greedy(texts);
      generator->generate(greedy, end_token, {.temperature = 0});
      for (std::size_t i = 0; i < texts.size(); ++i) {
        EXPECT_EQ(greedy.found[i], texts[i].text) << "text " << i;
        EXPECT_EQ(greedy.ended[i], 1);
      }
      ++runs;
    }
  EXPECT_GT(runs, 0);
}

}  // namespace
}  // namespace trireme::train
