#include <trireme/architecture/frozen.hpp>
#include <trireme/checkpoint/folders.hpp>
#include <trireme/checkpoint/writer.hpp>
#include <trireme/hugging_face/config_json.hpp>
#include <trireme/hugging_face/peft.hpp>
#include <trireme/hugging_face/weights.hpp>
#include <trireme/io/input_file.hpp>
#include <trireme/model/decoder.hpp>
#include <trireme/train/load.hpp>

#include "support/source_folder.hpp"
#include "support/training.hpp"
#include "support/whole_arrays.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

/// Adapters against Hugging Face's PEFT (make.py of tests/golden/peft), and frozen weights against
/// a run in which nothing is frozen.
namespace trireme::train {
namespace {

using namespace trireme::testing;
using P = model::Fp64;

struct PeftResults {
  std::vector<std::int32_t> tokens;
  std::vector<std::vector<double>> logits;  ///< before the first step, and after the last
  std::vector<double> losses, norms;
};

PeftResults read_peft_results(const std::string& path) {
  PeftResults out;
  std::ifstream in(path);
  for (std::string line, word; std::getline(in, line);) {
    std::istringstream words(line);
    words >> word;
    if (word == "tokens") {
      for (std::int32_t t = 0; words >> t;) out.tokens.push_back(t);
    } else if (word == "logits") {
      out.logits.emplace_back();
      for (double x = 0; words >> x;) out.logits.back().push_back(x);
    } else {
      words >> out.losses.emplace_back() >> out.norms.emplace_back();
    }
  }
  return out;
}

class Peft : public ::testing::TestWithParam<const char*> {
 protected:
  Peft() {
    model_ = hugging_face::parse_config(io::read_text_file(golden_ + "/config.json"), "").model;
    model_.dropout = 0;
    deck::AdapterConfig& a = model_.adapter;
    a.kind = golden_.ends_with("_dora") ? AdapterKind::dora : AdapterKind::lora;
    a.parts = {"layers"};
    if (std::string(GetParam()).starts_with("llama")) {
      a.rank = 3;
      a.alpha = 5;
      a.targets = {"attention.query", "attention.key_value", "attention.output",
                   "feed_forward.gate_up", "feed_forward.down"};
    } else {
      a.rank = 4;
      a.alpha = 6;
      a.scaling = AdapterScaling::rslora;
      a.targets = {"attention.query_key_value", "attention.output", "feed_forward.up",
                   "feed_forward.down"};
    }
  }

  /// Writes model and adapters as a checkpoint, and returns its folder.
  std::string import_as(DType dtype) {
    const hugging_face::SafetensorsFile adapter(golden_ + "/adapter/adapter_model.safetensors");
    hugging_face::import_weights(hugging_face::TensorFolder(golden_), model_, dtype,
                                 folder_.path().string(), {0, 0, ""}, false, &adapter);
    return folder_.file(checkpoint::folder_name(0));
  }

  /// The first logits after the first 13 tokens.
  std::vector<double> logits_of(const deck::ModelConfig& model, const std::string& checkpoint) {
    const auto architecture = architecture::describe(model);
    model::Parameters<P> parameters(architecture, architecture::whole_model(architecture), false);
    kernels::Handle handle;
    load_weights(handle, checkpoint::Reader(checkpoint), architecture, parameters);
    const auto alone = grid::Communicator::self();
    model::Decoder<P> decoder(architecture, parameters, *alone, {1, 1});
    for (std::int32_t i = 0; i < model.sequence; ++i)
      decoder.run(
          handle,
          std::vector<model::CachedToken>{{0, results_.tokens.at(static_cast<std::size_t>(i)), i}},
          model::PassWidth::narrow, i + 1 == model.sequence);
    std::vector<double> logits(results_.logits.front().size());
    const View1<double> computed(decoder.logits().data(), logits.size());
    copy_to_host<double>(handle, logits, computed, "the test reads logits");
    return logits;
  }

  void expect_near(const std::vector<double>& found, const std::vector<double>& expected,
                   double tolerance) {
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], expected[i], tolerance * std::max(1.0, std::abs(expected[i]))) << i;
  }

  std::string golden_ = golden_file(std::string("peft/") + GetParam());
  TemporaryFolder folder_;
  deck::ModelConfig model_;
  PeftResults results_ = read_peft_results(golden_ + "/results.txt");
};

INSTANTIATE_TEST_SUITE_P(Models, Peft,
                         ::testing::Values("llama", "gpt2", "llama_dora", "gpt2_dora"));

/// Five steps of AdamW on the same four samples. Sums of at most 52 · 40 terms differ by some
/// 1000 ε = 2e-13 per step, and the steps carry that on.
TEST_P(Peft, TrainingMatchesPeft) {
  deck::Config config =
      small_config(4, 2, 1,
                   {"optimizer.learning_rate=0.01", "optimizer.schedule=constant",
                    "optimizer.warmup_steps=0", "optimizer.clip_norm=0", "run.seed=1"});
  config.model = model_;
  const std::string path = folder_.file("tokens.h5");
  data::TokenFileWriter writer(path, "bytes", model_.vocabulary);
  writer.append(results_.tokens);
  writer.end_document(std::ssize(results_.tokens));
  writer.commit("test");
  const data::TokenFile tokens(path);
  const std::string checkpoint = import_as(DType::fp64);
  const auto self = grid::Communicator::self();
  Rig rig(config, tokens, *self);
  rig.engine->load(checkpoint::Reader(checkpoint));
  const Trace trace = rig.run(1, std::ssize(results_.losses));
  expect_near(trace.losses, results_.losses, 1e-10);
  expect_near(trace.norms, results_.norms, 1e-10);
}

TEST_P(Peft, AdapterAndMergedLogitsMatchPeft) {
  const std::string checkpoint = import_as(DType::fp64);
  expect_near(logits_of(model_, checkpoint), results_.logits.front(), 1e-9);
  const TemporaryFolder merged, imported;
  hugging_face::export_weights(checkpoint::Reader(checkpoint), model_, DType::fp64,
                               merged.path().string());
  deck::ModelConfig plain = model_;
  plain.adapter = {};
  hugging_face::import_weights(hugging_face::TensorFolder(merged.path().string()), plain,
                               DType::fp64, imported.path().string(), {0, 0, ""});
  expect_near(logits_of(plain, imported.file(checkpoint::folder_name(0))), results_.logits.front(),
              1e-9);
}

TEST_P(Peft, AdaptersRoundTripBitForBit) {
  const std::string checkpoint = import_as(DType::fp32);
  const TemporaryFolder out;
  hugging_face::export_adapters(checkpoint::Reader(checkpoint), model_, DType::fp32,
                                out.path().string());
  const hugging_face::SafetensorsFile before(golden_ + "/adapter/adapter_model.safetensors");
  const hugging_face::SafetensorsFile after(out.file("adapter_model.safetensors"));
  ASSERT_EQ(after.tensors().size(), before.tensors().size());
  for (const auto& tensor : before.tensors()) {
    const auto* same = after.find(tensor.name);
    ASSERT_NE(same, nullptr) << tensor.name;
    ASSERT_EQ(same->shape, tensor.shape) << tensor.name;
    std::vector<char> a(static_cast<std::size_t>(tensor.bytes)), b(a.size());
    before.read(tensor, 0, tensor.bytes, a.data());
    after.read(*same, 0, tensor.bytes, b.data());
    EXPECT_EQ(a, b) << tensor.name;
  }
}

class Frozen : public ::testing::Test {
 protected:
  Frozen() {
    // Without momentum, a step changes each weight by its gradient: 0.125 times that, exactly.
    plain_ = {"optimizer.kind=sgd",          "optimizer.momentum=0",
              "optimizer.weight_decay=0",    "optimizer.learning_rate=0.125",
              "optimizer.schedule=constant", "optimizer.warmup_steps=0",
              "optimizer.clip_norm=0"};
  }

  std::map<std::string, std::vector<double>> after(std::int64_t steps,
                                                   std::vector<std::string> overrides) {
    const auto self = grid::Communicator::self();
    Rig rig(small_config(4, 2, 1, overrides), tokens_, *self);
    rig.run(1, steps);
    return whole_arrays(*rig.engine, *self);
  }

  TemporaryFolder folder_;
  data::TokenFile tokens_{write_tokens(folder_, 4000)};
  std::vector<std::string> plain_;
};

/// The gradients of what is trained do not depend on what is frozen, so that a step of gradient
/// descent changes both runs alike.
TEST_F(Frozen, WeightsKeepTheirBitsAndOthersTrainUnchanged) {
  const auto initial = after(0, plain_);
  const auto all = after(1, plain_);
  for (const char* frozen :
       {"optimizer.frozen=embedding,layers.0", "optimizer.frozen=layers.1,final_norm",
        "optimizer.frozen=layers.*.attention.query,layers.*.attention."
        "key_value,layers.0.feed_forward_norm,layers.1.feed_forward.up_bias"}) {
    auto overrides = plain_;
    overrides.push_back(frozen);
    const auto some = after(1, overrides);
    ASSERT_EQ(some.size(), all.size());
    std::size_t kept = 0;
    const auto patterns = small_config(4, 2, 1, overrides).model.frozen;
    for (const auto& [name, weights] : some) {
      const bool is_kept = std::ranges::any_of(
          patterns, [&](const auto& p) { return architecture::matches(p, name); });
      kept += is_kept ? 1 : 0;
      EXPECT_EQ(weights, is_kept ? initial.at(name) : all.at(name)) << name;
      if (!is_kept) {
        EXPECT_NE(weights, initial.at(name)) << name;
      }
    }
    EXPECT_GT(kept, 0u);
  }
}

TEST_F(Frozen, WeightsHaveNoOptimizerStateAndNoMasterCopy) {
  for (const char* compute : {"precision.compute=fp64", "precision.compute=bf16"}) {
    const auto arrays = after(2, {compute, "optimizer.frozen=embedding,layers.0"});
    const auto initial = after(0, {compute, "optimizer.frozen=embedding,layers.0"});
    EXPECT_TRUE(arrays.contains("optimizer.first_moment.layers.1.attention.query"));
    for (const auto& [name, numbers] : arrays) {
      EXPECT_FALSE(name.starts_with("optimizer.first_moment.layers.0") ||
                   name.starts_with("optimizer.first_moment.embedding"))
          << name;
      if (name.starts_with("layers.0.") || name.starts_with("embedding.")) {
        EXPECT_EQ(numbers, initial.at(name)) << name;
      }
    }
  }
}

std::string checkpoint_of(Rig& rig, std::int64_t step, const TemporaryFolder& to) {
  const auto slices = rig.engine->share();
  const std::string directory = to.path().string();
  const auto shard = checkpoint::write_shard(checkpoint::begin(directory, step), 0, slices);
  checkpoint::commit(directory, {step, 4 * step, "deck"}, {shard}, {});
  return to.file(checkpoint::folder_name(step));
}

/// Norms of the rows of a matrix, whose sums of squares have at most 64 terms.
void expect_norms(const std::vector<double>& norms, const std::vector<double>& matrix) {
  const std::size_t columns = matrix.size() / norms.size();
  for (std::size_t i = 0; i < norms.size(); ++i) {
    double square = 0;
    for (std::size_t j = 0; j < columns; ++j) {
      const double x = matrix[i * columns + j];
      square += x * x;
    }
    EXPECT_NEAR(norms[i], std::sqrt(square), 64 * 2.3e-16 * norms[i]) << i;
  }
}

/// A checkpoint without adapters begins a run of adapters; its own checkpoints continue it.
TEST_F(Frozen, AdaptersStartFromACheckpointWithoutAdapters) {
  const auto self = grid::Communicator::self();
  for (const char* kind : {"adapter.kind=lora", "adapter.kind=dora"}) {
    const std::vector<std::string> lora{kind, "adapter.dropout=0.25"};
    const TemporaryFolder base, own;
    Rig trained(small_config(4, 2, 1), tokens_, *self);
    trained.run(1, 2);
    const auto weights = whole_arrays(*trained.engine, *self);
    const std::string from = checkpoint_of(trained, 2, base);
    Rig rig(small_config(4, 2, 1, lora), tokens_, *self);
    rig.engine->load(checkpoint::Reader(from));
    const auto begun = whole_arrays(*rig.engine, *self);
    const auto fresh = after(0, lora);
    for (const auto& [name, numbers] : begun) {
      if (name.starts_with("optimizer.")) continue;
      const bool adapter = name.find(".adapter_") != std::string::npos;
      if (name.ends_with(architecture::adapter_m)) {
        expect_norms(numbers, weights.at(name.substr(0, name.size() - 10)));
        continue;
      }
      EXPECT_EQ(numbers, (adapter ? fresh : weights).at(name)) << name;
    }
    rig.run(3, 4);
    const std::string middle = checkpoint_of(rig, 4, own);
    const Trace straight = rig.run(5, 6);
    Rig resumed(small_config(4, 2, 1, lora), tokens_, *self);
    resumed.engine->load(checkpoint::Reader(middle));
    EXPECT_EQ(resumed.run(5, 6), straight);
  }
}

/// GPT-2's files have one matrix for queries, keys and values, which have adapters of their own
/// here. The merged weights are rounded once: the loss is the same to some 1000 ε.
TEST_F(Frozen, MergedWeightsGiveTheLossOfTheirAdapters) {
  const auto self = grid::Communicator::self();
  const data::Windows windows(tokens_, 23);
  const std::vector<std::int32_t> bytes(257, 1);
  const auto loss = [&](Rig& rig) { return rig.engine->evaluate(windows, 8, bytes).tokens().nats; };
  for (const char* family : {"model.family=gpt", "model.family=llama"})
    for (const char* kind : {"adapter.kind=lora", "adapter.kind=dora"}) {
      SCOPED_TRACE(text(family, ' ', kind));
      const TemporaryFolder own, merged, imported;
      const deck::Config adapted = small_config(4, 2, 1, {family, kind, "adapter.rank=3"});
      Rig rig(adapted, tokens_, *self);
      const double before = loss(rig);
      rig.run(1, 5);
      hugging_face::export_weights(checkpoint::Reader(checkpoint_of(rig, 5, own)), adapted.model,
                                   DType::fp64, merged.path().string());
      const deck::Config plain = small_config(4, 2, 1, {family});
      hugging_face::import_weights(hugging_face::TensorFolder(merged.path().string()), plain.model,
                                   DType::fp64, imported.path().string(), {0, 0, ""});
      Rig whole(plain, tokens_, *self);
      whole.engine->load(checkpoint::Reader(imported.file(checkpoint::folder_name(0))));
      EXPECT_NEAR(loss(whole), loss(rig), 1e-12 * before);
      EXPECT_GT(std::abs(loss(rig) - before), 1e-6 * before);  // the adapters have learned
    }
}

}  // namespace
}  // namespace trireme::train
