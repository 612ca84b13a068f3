#include <trireme/plan/block_kernels.hpp>
#include <trireme/plan/program.hpp>

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "plan/example.hpp"

namespace trireme::plan {
namespace {

using testing::config_of;
using Calls = std::map<std::string, std::int64_t>;

/// Calls per layer and micro-batch, of a model of 4 layers and 4 micro-batches on one rank; without
/// kernels that no step calls.
Calls calls_of(deck::Config config, Recompute recompute, bool split_backward = false) {
  config.parallel.recompute = recompute;
  const auto a = architecture::describe(config.model);
  Calls calls;
  for (const BlockKernel& k :
       block_kernels(config, a, testing::shard_of(config, a, 0, 0), split_backward, {})) {
    EXPECT_EQ(k.calls % 16, 0) << k.name;
    EXPECT_FALSE(calls.contains(k.name)) << k.name;
    calls[k.name] = k.calls / 16;
  }
  return calls;
}

Calls with(Calls calls, const Calls& others) {
  for (const auto& [name, n] : others) calls[name] = n;
  return calls;
}

const Calls gpt{{"layer_norm.forward", 1},
                {"layer_norm.backward_input", 2},
                {"layer_norm.backward_weight", 2},
                {"attention.query.forward", 1},
                {"attention.query.backward_input", 1},
                {"attention.query.backward_weight", 1},
                {"attention.forward", 1},
                {"attention.backward", 1},
                {"attention.output.forward", 1},
                {"attention.output.backward_input", 1},
                {"attention.output.backward_weight", 1},
                {"residual_layer_norm.forward", 1},
                {"feed_forward.up.forward", 1},
                {"feed_forward.up.backward_input", 1},
                {"feed_forward.up.backward_weight", 1},
                {"gelu.forward", 1},
                {"gelu.backward", 1},
                {"feed_forward.down.forward", 1},
                {"feed_forward.down.backward_input", 1},
                {"feed_forward.down.backward_weight", 1},
                {"residual_dropout.forward", 1},
                {"dropout.backward", 2}};

/// What the layer's last product needs and what adds to its result is not computed again.
const Calls gpt_again{{"layer_norm.forward", 2},
                      {"attention.query.forward", 2},
                      {"attention.forward", 2},
                      {"attention.output.forward", 2},
                      {"feed_forward.up.forward", 2},
                      {"residual_layer_norm.forward", 2},
                      {"gelu.forward", 2}};

TEST(BlockKernels, CountGptKernelsForEachRecomputation) {
  EXPECT_EQ(calls_of(config_of({}), Recompute::none), gpt);
  EXPECT_EQ(calls_of(config_of({}), Recompute::selective),
            with(gpt, {{"layer_norm.forward", 3}, {"gelu.forward", 2}}));
  EXPECT_EQ(calls_of(config_of({}), Recompute::full), with(gpt, gpt_again));
}

TEST(BlockKernels, CountRotaryPositionsOfLlamaAndHeadNormsOfQwen3) {
  deck::Config config = config_of({.key_value_heads = 2});
  const Calls llama{{"rotary.forward", 2},   {"rotary.backward", 1},
                    {"swiglu.forward", 2},   {"swiglu.backward", 1},
                    {"rms_norm.forward", 2}, {"residual_rms_norm.forward", 2}};
  const Calls found = calls_of(config, Recompute::full);
  EXPECT_EQ(with(found, llama), found);
  EXPECT_FALSE(found.contains("gelu.forward"));
  config.model.query_key_norm = QueryKeyNorm::head;
  const Calls heads{
      {"head_norm.forward", 2}, {"head_norm.backward_input", 1}, {"head_norm.backward_weight", 1}};
  EXPECT_EQ(calls_of(config, Recompute::full), with(found, heads));
  config.model.query_key_norm = QueryKeyNorm::width;
  const Calls width{{"width_norm.forward", 2},
                    {"width_norm.backward_input", 1},
                    {"width_norm.backward_weight", 1}};
  EXPECT_EQ(calls_of(config, Recompute::full), with(found, width));
}

/// Each half computes again what it reads. The gradient of GELU reads its input alone, its output
/// is the input of a product's gradient of the weight.
TEST(BlockKernels, SplitBackwardPassSumsBothHalves) {
  EXPECT_EQ(calls_of(config_of({}), Recompute::none, true), gpt);
  EXPECT_EQ(calls_of(config_of({}), Recompute::full, true),
            with(gpt, {{"layer_norm.forward", 3},
                       {"attention.query.forward", 3},
                       {"attention.forward", 3},
                       {"attention.output.forward", 3},
                       {"residual_layer_norm.forward", 3},
                       {"feed_forward.up.forward", 3},
                       {"gelu.forward", 2}}));
}

/// The norms of a post-norm layer overwrite the gradient of the residual stream, and the gradients
/// of what they feed are added to it; the first layer alone drops numbers of the embeddings.
TEST(BlockKernels, CountGradientSumsAndEmbeddingDropoutOfBert) {
  deck::Config config = config_of({.pipeline = 2});
  deck::set_family(config.model, Family::bert);
  config.model.dropout = 0.1;
  const auto a = architecture::describe(config.model);
  for (const int rank : {0, 1}) {
    Calls calls;
    for (const BlockKernel& k :
         block_kernels(config, a, testing::shard_of(config, a, rank, 0), false, {})) {
      calls[k.name] = k.calls;
      EXPECT_EQ(k.call.accumulates(), k.name == "accumulate") << k.name;
    }
    const std::int64_t first = rank == 0 ? 4 : 0;  // micro-batches
    EXPECT_EQ(calls["accumulate"], 16);
    EXPECT_EQ(calls["dropout.forward"], first);
    EXPECT_EQ(calls["dropout.backward"], 16 + first);
  }
}

TEST(BlockKernels, KernelsOfTheEndsReadOrPlaceRows) {
  const auto names = [](const deck::Config& config) {
    std::set<std::string> found;
    for (const BlockKernel& k : end_kernels(config, architecture::describe(config.model))) {
      EXPECT_EQ(k.calls, 4) << k.name;
      EXPECT_TRUE(found.insert(k.name).second) << k.name;
    }
    return found;
  };
  std::set<std::string> expected{"embedding.forward", "embedding.backward"};
  EXPECT_EQ(names(config_of({.key_value_heads = 2})), expected);
  expected.insert({"positions.forward", "positions.backward"});
  EXPECT_EQ(names(config_of({})), expected);
  deck::Config config = config_of({});
  deck::set_family(config.model, Family::bert);
  expected.insert({"segments.forward", "segments.backward", "rows.pick", "rows.place"});
  EXPECT_EQ(names(config), expected);
}

}  // namespace
}  // namespace trireme::plan
