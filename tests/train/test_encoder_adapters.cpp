#include <trireme/checkpoint/folders.hpp>
#include <trireme/hugging_face/config_json.hpp>
#include <trireme/hugging_face/peft.hpp>
#include <trireme/hugging_face/weights.hpp>
#include <trireme/io/input_file.hpp>
#include <trireme/train/load.hpp>

#include "model/vision_batch.hpp"
#include "support/source_folder.hpp"
#include "support/training.hpp"
#include "train/checkpoints.hpp"
#include "train/t5_samples.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

/// Adapters of encoders and of cross-attention against Hugging Face's PEFT: make.py of
/// tests/golden/peft_encoders.
namespace trireme::train {
namespace {

using namespace trireme::testing;

struct AdapterCase {
  const char* name;
  const char* base;  ///< in tests/golden
  std::int64_t rank;
  double alpha;
  std::vector<std::string> targets, parts;
};

const std::vector<std::string> attention_inputs{"attention.query", "attention.key_value"};

const AdapterCase adapter_cases[]{
    {"t5",
     "t5_hugging_face/v1_1",
     3,
     5,
     {"attention.query", "attention.key_value", "attention.output", "cross_attention.query",
      "cross_attention.key_value", "cross_attention.output", "feed_forward.gate_up",
      "feed_forward.down"},
     {"layers", "encoder"}},
    {"t5_dora", "t5_hugging_face/v1_0", 2, 4, attention_inputs, {"encoder"}},
    {"clip",
     "llava_hugging_face/clip",
     3,
     5,
     {"attention.query", "attention.key_value", "attention.output", "feed_forward.gate_up",
      "feed_forward.up", "feed_forward.down"},
     {"vision", "layers"}},
    {"siglip_dora", "llava_hugging_face/siglip", 2, 4, attention_inputs, {"vision"}}};

class EncoderAdapters : public ::testing::TestWithParam<AdapterCase> {
 protected:
  EncoderAdapters() {
    const AdapterCase& of = GetParam();
    const std::string path = base_ + "/config.json";
    model_ = hugging_face::parse_config(io::read_text_file(path), path).model;
    model_.dropout = 0;
    if (model_.vision.present()) {
      model_.sequence = model::image_sequence;
      model_.vision.images = 2;
    } else {
      samples_ = read_span_samples(base_ + "/results.txt");
      for (SpanSample& sample : samples_) sample.source.back() = sample.targets.back() = 1;
      model_.objective = Objective::sequence_to_sequence;
      model_.encoder.sequence = std::ssize(samples_.front().source);
      model_.sequence = std::ssize(samples_.front().targets);
    }
    deck::AdapterConfig& a = model_.adapter;
    a.kind = std::string_view(of.name).ends_with("_dora") ? AdapterKind::dora : AdapterKind::lora;
    a.rank = of.rank;
    a.alpha = of.alpha;
    a.targets = of.targets;
    a.parts = of.parts;
    std::ifstream in(golden_ + ".txt");
    for (std::string line, word; std::getline(in, line);) {
      std::istringstream words(line);
      words >> word;
      if (word == "text") {
        texts_.push_back({samples_.at(texts_.size()).source, {}});
        for (std::int32_t id = 0; words >> id;) texts_.back().text.push_back(id);
      } else {
        words >> expected_.losses.emplace_back() >> expected_.norms.emplace_back();
      }
    }
  }

  std::int64_t samples() const {
    return model_.vision.present() ? model::image_samples : std::ssize(samples_);
  }

  /// A token file with the golden's samples, written by rank 0 or in a folder of each rank.
  std::string write_samples() {
    if (model_.vision.present()) return model::write_golden_documents(folder_, model_.vision);
    const std::string path = folder_.file("pairs.h5");
    data::TokenFileWriter writer(path, "bytes", model_.vocabulary);
    for (const SpanSample& sample : samples_) {
      writer.append(sample.source, false);
      writer.append(sample.targets);
      writer.end_document(10);
    }
    writer.commit("test");
    return path;
  }

  /// Writes model and adapters as a checkpoint, and returns its folder.
  std::string import_as(DType dtype) {
    const hugging_face::SafetensorsFile adapter(golden_ + "/adapter_model.safetensors");
    hugging_face::import_weights(hugging_face::TensorFolder(base_), model_, dtype,
                                 folder_.path().string(), {0, 0, ""}, false, &adapter);
    return folder_.file(checkpoint::folder_name(0));
  }

  deck::Config config(const deck::ModelConfig& model, const std::vector<std::string>& more = {}) {
    std::vector<std::string> overrides{"optimizer.learning_rate=0.01",
                                       "optimizer.schedule=constant", "optimizer.warmup_steps=0",
                                       "optimizer.clip_norm=0", "run.seed=1"};
    overrides.insert(overrides.end(), more.begin(), more.end());
    deck::Config c = small_config(samples(), 1, 1, overrides);
    c.model = model;
    c.data.start_token = 0;
    return c;
  }

  void expect_near(const std::vector<double>& found, const std::vector<double>& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], expected[i], 1e-10 * std::max(1.0, std::abs(expected[i]))) << i;
  }

  std::string golden_ = golden_file(std::string("peft_encoders/") + GetParam().name);
  std::string base_ = golden_file(GetParam().base);
  TemporaryFolder folder_;
  deck::ModelConfig model_;
  std::vector<SpanSample> samples_;
  std::vector<GreedyText> texts_;
  Trace expected_;
};

INSTANTIATE_TEST_SUITE_P(Models, EncoderAdapters, ::testing::ValuesIn(adapter_cases),
                         [](const auto& test) { return std::string(test.param.name); });

/// Five steps of AdamW on all samples, and then greedy texts. Sums of at most 100 terms differ by
/// some 1000 ε = 2e-13 per step, and the steps carry that on.
TEST_P(EncoderAdapters, TrainingAndTextsMatchPeft) {
  ASSERT_EQ(expected_.losses.size(), 5u);
  const deck::Config c = config(model_);
  const data::TokenFile tokens(write_samples());
  const std::string imported = import_as(DType::fp64);
  const auto self = grid::Communicator::self();
  Rig rig(c, tokens, *self);
  rig.engine->load(checkpoint::Reader(imported));
  const Trace trace = rig.run(1, 5);
  expect_near(trace.losses, expected_.losses);
  expect_near(trace.norms, expected_.norms);
  if (texts_.empty()) return;
  const TemporaryFolder trained;
  save(*rig.engine, trained.path().string(), 5, *self);
  const auto architecture = architecture::describe(model_);
  const auto generator =
      make_generator(c, architecture, rig.grid(), {3, std::ssize(texts_.front().text)});
  generator->load(checkpoint::Reader(trained.file(checkpoint::folder_name(5))));
  GreedyTexts greedy(texts_);
  constexpr std::int32_t no_end = 1 << 20;
  generator->generate(greedy, no_end, {.temperature = 0});
  for (std::size_t i = 0; i < texts_.size(); ++i) EXPECT_EQ(greedy.found[i], texts_[i].text) << i;
}

/// The merged weights are rounded once: the loss is the same to some 1000 ε.
TEST_P(EncoderAdapters, MergedWeightsGiveTheLossOfPeft) {
  const std::string imported = import_as(DType::fp64);
  const TemporaryFolder merged, again;
  hugging_face::export_weights(checkpoint::Reader(imported), model_, DType::fp64,
                               merged.path().string());
  deck::ModelConfig plain = model_;
  plain.adapter = {};
  hugging_face::import_weights(hugging_face::TensorFolder(merged.path().string()), plain,
                               DType::fp64, again.path().string(), {0, 0, ""});
  const data::TokenFile tokens(write_samples());
  const auto self = grid::Communicator::self();
  Rig rig(config(plain), tokens, *self);
  rig.engine->load(checkpoint::Reader(again.file(checkpoint::folder_name(0))));
  expect_near(rig.run(1, 1).losses, {expected_.losses.front()});
}

/// The exported files have the bits of PEFT's files, except the adapters of a layer that the model
/// does not use, and name the same layers.
TEST_P(EncoderAdapters, FilesRoundTripBitForBit) {
  const std::string imported = import_as(DType::fp32);
  const TemporaryFolder out;
  hugging_face::export_adapters(checkpoint::Reader(imported), model_, DType::fp32,
                                out.path().string());
  const hugging_face::SafetensorsFile before(golden_ + "/adapter_model.safetensors");
  const hugging_face::SafetensorsFile after(out.file("adapter_model.safetensors"));
  EXPECT_GT(after.tensors().size(), 0u);
  for (const auto& tensor : before.tensors()) {
    const auto* same = after.find(tensor.name);
    const bool used = tensor.name.find("vision_tower.encoder.layers.2.") == std::string::npos;
    ASSERT_EQ(same != nullptr, used) << tensor.name;
    if (same == nullptr) continue;
    ASSERT_EQ(same->shape, tensor.shape) << tensor.name;
    std::vector<char> a(static_cast<std::size_t>(tensor.bytes)), b(a.size());
    before.read(tensor, 0, tensor.bytes, a.data());
    after.read(*same, 0, tensor.bytes, b.data());
    EXPECT_EQ(a, b) << tensor.name;
  }
  for (const auto& tensor : after.tensors())
    EXPECT_NE(before.find(tensor.name), nullptr) << tensor.name;
  using nlohmann::json;
  const auto theirs = json::parse(io::read_text_file(golden_ + "/adapter_config.json"));
  const auto ours = json::parse(hugging_face::adapter_config_text(model_, ""));
  EXPECT_EQ(ours.at("task_type"), theirs.at("task_type"));
  if (theirs.at("target_modules").is_string()) {
    EXPECT_EQ(ours.at("target_modules"), theirs.at("target_modules"));
  }
}

/// A layer has a backward pass from the first one with adapters on: encoders before it have none.
TEST_P(EncoderAdapters, BackwardPassesBeginAtTheFirstAdapter) {
  const auto architecture = architecture::describe(model_);
  EXPECT_EQ(architecture.first_backward, architecture::block_of_layer(0));
  deck::ModelConfig later = model_;
  later.frozen = {text(later.vision.present() ? "vision" : "encoder", ".layers.0")};
  EXPECT_EQ(architecture::describe(later).first_backward, architecture::block_of_layer(1));
  later = model_;
  later.adapter.parts = {"layers"};
  EXPECT_EQ(architecture::describe(later).first_backward,
            architecture::block_of_layer(later.first_decoder_layer()));
}

}  // namespace
}  // namespace trireme::train
