#include <trireme/plan/memory.hpp>

#include <gtest/gtest.h>

#include <map>

#include "plan/example.hpp"

namespace trireme::plan {
namespace {

using testing::config_of;

std::map<std::string, Bytes> memory(const deck::Config& config, int pipeline_rank, int tensor_rank,
                                    const schedule::Needs& needs, const Machine& machine = {}) {
  const auto a = architecture::describe(config.model);
  std::map<std::string, Bytes> bytes;
  for (const MemoryRow& row : training_memory(
           config, a, testing::shard_of(config, a, pipeline_rank, tensor_rank), needs, machine))
    bytes[row.what] = row.bytes;
  return bytes;
}

/// Every number by hand: fp64, so that all of them have 8 bytes; 64 tokens, 4 layers on 2 stages.
TEST(Memory, TensorRankSumsItsArrays) {
  const auto bytes = memory(config_of({.tensor = 2, .pipeline = 2}), 1, 0,
                            {.slots = 3, .received_gradients = 0, .send_buffers = 2});
  // The second stage: 2 layers of 12 · 32² / 2 matrix elements, split vectors (3 · 32 + 128) / 2,
  // replicated ones 6 · 32; the final norm 2 · 32 and half of the token table once more.
  const Bytes elements =
      2 * (12 * 32 * 32 / 2 + (3 * 32 + 128) / 2 + 6 * 32) + 2 * 32 + 96 / 2 * 32;
  // 3 · 16 elements of the biases of query, key and value take 64 of an arena aligned to 32.
  const Bytes aligned = elements + 2 * 16;
  EXPECT_EQ(bytes.at("weights"), 8 * aligned);
  EXPECT_EQ(bytes.at("gradients"), 8 * aligned);
  EXPECT_EQ(bytes.at("optimizer state"), 16 * aligned);
  // Per token: 4 residual streams [D]; qkv 3 · 16, o 16, h and g 64 each; log-sum-exp of 2 heads
  // and 4 statistics. The head: x, dy and 2 statistics. A target is 4 bytes.
  const Bytes layer = 64 * 8 * (4 * 32 + 3 * 16 + 16 + 2 * 64 + 2 + 4);
  const Bytes head = 64 * 8 * (2 * 32 + 2);
  EXPECT_EQ(bytes.at("saved activations"), 3 * (2 * layer + head + 64 * 4));
  // Half of the tokens of [T, D] travel.
  EXPECT_EQ(bytes.at("transfer buffers"), 2 * 32 * 32 * 8);
}

TEST(Memory, SequenceParallelismDividesTheResidualStream) {
  const schedule::Needs needs{.slots = 1};
  const auto whole = memory(config_of({.tensor = 4}), 0, 0, needs);
  const auto cut = memory(config_of({.tensor = 4, .sequence_parallel = true}), 0, 0, needs);
  EXPECT_EQ(whole.at("weights"), cut.at("weights"));
  const Bytes layer = 64 * 8 * (4 * 32 + 4);  // residual streams and statistics
  const Bytes head = 64 * 8 * (2 * 32 + 2);
  EXPECT_EQ(whole.at("saved activations") - cut.at("saved activations"),
            (4 * layer + head) / 4 * 3);
  const auto alone = memory(config_of({}), 0, 0, needs);
  EXPECT_EQ(memory(config_of({.sequence_parallel = true}), 0, 0, needs), alone)
      << "on one tensor rank it has no effect";
}

TEST(Memory, TiedEmbeddingsNeedASecondGradientOrACopy) {
  const schedule::Needs needs{.slots = 1};
  const Bytes table = 96 * 32 * 8;
  const auto tied = memory(config_of({}), 0, 0, needs);
  EXPECT_EQ(tied.at("gradients") - tied.at("weights"), table);
  const auto untied = memory(config_of({.tied = false}), 0, 0, needs);
  EXPECT_EQ(untied.at("gradients"), untied.at("weights"));
  EXPECT_EQ(untied.at("weights") - tied.at("weights"), table);
  const auto last = memory(config_of({.pipeline = 2}), 1, 0, needs);
  EXPECT_EQ(last.at("gradients"), last.at("weights"));
  EXPECT_EQ(memory(config_of({.pipeline = 2, .tied = false}), 1, 0, needs), last);
}

TEST(Memory, SplitBackwardPassKeepsGradientsInSlots) {
  const auto whole = memory(config_of({}), 0, 0, {.slots = 1});
  const auto split = memory(config_of({}), 0, 0, {.slots = 1, .split_backward = true});
  const Bytes work = 64 * 8 * (4 * 32 + 3 * 32 + 128);  // per layer
  const Bytes dx = 64 * 8 * 32;
  EXPECT_EQ(split.at("saved activations") - whole.at("saved activations"), 4 * work + dx);
  // Otherwise each gradient is in scratch memory, only for as long as it is needed.
  EXPECT_GT(whole.at("scratch"), split.at("scratch"));
  EXPECT_LT(whole.at("scratch") - split.at("scratch"), work);
}

TEST(Memory, SlotFitsTheLargestStageOfTheRank) {
  // Six stages of four layers: the ranks 0 and 1 have one layer in each chunk, rank 2 only in one.
  const auto config = config_of({.pipeline = 3, .chunks = 2});
  const auto first = memory(config, 0, 0, {.slots = 1});
  const auto twice = memory(config, 0, 0, {.slots = 2});
  EXPECT_EQ(2 * first.at("saved activations"), twice.at("saved activations"));
  const Bytes layer = 64 * 8 * (4 * 32 + 4 * 32 + 2 * 128 + 4 + 4);
  EXPECT_EQ(first.at("saved activations"), layer + 64 * 4);
}

TEST(Memory, LastTensorRankHoldsTheSmallestPart) {
  const auto config = config_of({.tensor = 3});  // 4 heads: 2, 1, 1
  const auto first = memory(config, 0, 0, {.slots = 1});
  const auto last = memory(config, 0, 2, {.slots = 1});
  EXPECT_LT(last.at("weights"), first.at("weights"));
  EXPECT_LT(last.at("saved activations"), first.at("saved activations"));
}

}  // namespace
}  // namespace trireme::plan
