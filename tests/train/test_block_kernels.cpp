#include <trireme/plan/block_kernels.hpp>
#include <trireme/tensor/views.hpp>

#include "support/launch_recorder.hpp"
#include "support/training.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

/// The calls that `trireme bench` counts are the launches of a training step.
namespace trireme::train {
namespace {

using namespace trireme::testing;

/// Launches per micro-batch outside of the layers; the rest of what is counted has none.
struct Ends {
  std::map<std::string, std::int64_t> embedding;  ///< with dropout
  std::map<std::string, std::int64_t> head;
};

const Ends gpt_ends{{{"kernels/dropout_forward", 1}, {"kernels/dropout_backward", 1}},
                    {{"kernels/layer_norm_forward", 1},
                     {"kernels/layer_norm_backward_input", 1},
                     {"kernels/layer_norm_backward_weight", 1},
                     {"kernels/matmul", 3}}};
const Ends llama_ends{gpt_ends.embedding,
                      {{"kernels/rms_norm_forward", 1},
                       {"kernels/rms_norm_backward_input", 1},
                       {"kernels/rms_norm_backward_weight", 1},
                       {"kernels/matmul", 3}}};
/// Dense layer, GELU, norm and logits; of pairs a dense layer and two scores.
const Ends bert_ends{{},
                     {{"kernels/layer_norm_forward", 2},
                      {"kernels/layer_norm_backward_input", 2},
                      {"kernels/layer_norm_backward_weight", 2},
                      {"kernels/gelu_forward", 1},
                      {"kernels/gelu_backward", 1},
                      {"kernels/matmul", 12}}};

struct KernelCase {
  Family family;
  const Ends& ends;
  const char* schedule;
  const char* recompute;
  const char* property = "model.layers=5";
};

class BlockKernels : public ::testing::Test {
 protected:
  static deck::Config config_of(const KernelCase& c, int tensor, int pipeline) {
    return small_config(
        12, 1, runtime().ranks(),
        {text("model.family=", name_of(c.family)), "model.layers=5", "model.heads=6", c.property,
         text("model.vocabulary=", c.family == Family::bert ? 261 : 257),
         "model.tied_embeddings=false",  // their gradients are added, too
         text("parallel.tensor=", tensor), text("parallel.pipeline=", pipeline),
         text("parallel.schedule=", c.schedule), text("parallel.recompute=", c.recompute)});
  }

  /// Launches by label and products in the second step, less those of the ends.
  std::map<std::string, std::int64_t> launches_of(const deck::Config& config, const Ends& ends,
                                                  const architecture::Shard& shard) {
    Rig rig(config, tokens_);
    rig.run(1, 1);
    std::map<std::string, std::int64_t> launches;
    const LaunchRecorder recorder;
    rig.engine->train_step(2, rig.samples);
    for (const std::string& label : recorder.labels()) ++launches[label];
    for (const std::string& region : recorder.regions()) ++launches[region];
    rig.engine->result();  // the step has ended before its memory goes
    const std::int64_t micros = config.batch.global / config.parallel.data;
    const auto remove = [&](const std::map<std::string, std::int64_t>& end) {
      for (const auto& [label, n] : end) launches[label] -= n * micros;
    };
    if (shard.has_embedding() && config.model.dropout > 0) remove(ends.embedding);
    if (shard.has_head()) remove(ends.head);
    return launches;
  }

  void expect_launches_as_counted(const KernelCase& c, int tensor, int pipeline) {
    SCOPED_TRACE(text(name_of(c.family), ", ", c.schedule, ", ", c.recompute, ", ", c.property,
                      ", tensor ", tensor, ", pipeline ", pipeline));
    const deck::Config config = config_of(c, tensor, pipeline);
    const auto a = architecture::describe(config.model);
    const int rank = layout::ProcessGrid(config.parallel.axes(), runtime().ranks())
                         .position(Axis::pipeline, runtime().rank());
    const auto shard = architecture::make_shard(a, config.parallel, rank, 0);
    const auto needs = plan::training_needs(plan::step_programs(config, plan::Machine{}));
    auto launches = launches_of(config, c.ends, shard);
    std::int64_t products = 0;
    for (const plan::BlockKernel& k : plan::block_kernels(
             config, a, shard, needs[static_cast<std::size_t>(rank)].split_backward, {})) {
      const auto& op = a.kinds[k.kind].operations[static_cast<std::size_t>(k.call.operation)];
      std::string label = "kernels/" + k.name;
      std::ranges::replace(label, '.', '_');
      if (op.kind == architecture::OperationKind::linear && !k.call.accumulates())
        products += k.calls;
      else
        EXPECT_EQ(k.calls, launches[label]) << label;
    }
    EXPECT_EQ(products, launches["kernels/matmul"]);
  }

  TemporaryFolder folder_;
  data::TokenFile tokens_{write_tokens(folder_, 20000)};
};

TEST_F(BlockKernels, LaunchesMatchTheCount) {
  if (!exec_on_host) GTEST_SKIP() << "sums of columns take two launches on devices";
  const int ranks = runtime().ranks();
  for (const auto& [tensor, pipeline] : {std::pair{1, 1}, {2, 1}, {1, 2}, {2, 2}})
    for (const KernelCase& c :
         {KernelCase{Family::gpt, gpt_ends, "1f1b", "none", "model.shared_layers=2"},
          KernelCase{Family::gpt, gpt_ends, "1f1b", "selective", "model.dropout=0"},
          KernelCase{Family::gpt, gpt_ends, "zb-h1", "full"},
          KernelCase{Family::llama, llama_ends, "1f1b", "full"},
          KernelCase{Family::llama, llama_ends, "zb-h1", "selective"},
          KernelCase{Family::gemma2, llama_ends, "1f1b", "full"},
          KernelCase{Family::gemma, llama_ends, "zb-h1", "selective"},
          KernelCase{Family::bert, bert_ends, "1f1b", "none"},
          KernelCase{Family::bert, bert_ends, "zb-h1", "full"},
          KernelCase{Family::bert, bert_ends, "gpipe", "selective", "model.dropout=0"}})
      if (tensor * pipeline == ranks) expect_launches_as_counted(c, tensor, pipeline);
}

}  // namespace
}  // namespace trireme::train
