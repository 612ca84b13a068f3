#include <trireme/deck/families.hpp>
#include <trireme/plan/cost.hpp>
#include <trireme/plan/network_time.hpp>
#include <trireme/plan/recompute.hpp>
#include <trireme/plan/step_time.hpp>
#include <trireme/plan/traffic.hpp>

#include <gtest/gtest.h>

#include <limits>

#include "plan/example.hpp"
#include "plan/speeds.hpp"
#include "support/layouts.hpp"

namespace trireme::plan {
namespace {

using testing::Axes;
using testing::config_of;

constexpr double micro_batch_tokens = 64;  ///< of a micro-batch of config_of()

/// 4 layers of a family with the same sizes; two heads of keys and values where it has groups.
deck::Config of_family(Family family, const Axes& axes, Recompute recompute = Recompute::none) {
  deck::Config c = config_of(axes);
  deck::set_family(c.model, family);
  if (family != Family::gpt && family != Family::bert) c.model.key_value_heads = 2;
  c.parallel.recompute = recompute;
  return c;
}

BlockTimes times(const deck::Config& c, const Machine& machine, bool split = false) {
  return part_times(c, architecture::describe(c.model), split, machine);
}

/// Kernels take no time, so that only messages, or the host, do.
Machine without_kernels() {
  Machine m = testing::cluster();
  m.device.peak_fp64 = m.device.bandwidth = std::numeric_limits<double>::infinity();
  m.device.launch = 0;
  return m;
}

TEST(BlockTimeModel, TensorRanksSumToTheFlopsOfTheSchedule) {
  for (const Family family : {Family::gpt, Family::llama, Family::bert, Family::qwen2,
                              Family::qwen3, Family::mistral, Family::gemma2})
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full})
      for (const std::int64_t tensor : {1, 2})
        for (const bool sequence_parallel : {false, true}) {
          SCOPED_TRACE(text(name_of(family), " ", name_of(recompute), " ", tensor));
          const auto c = of_family(
              family, {.tensor = tensor, .sequence_parallel = sequence_parallel}, recompute);
          const auto a = architecture::describe(c.model);
          const StageFlops want = stage_flops(a, architecture::partition(a, testing::layout_of(4)),
                                              kept_tensors(c.parallel, a))
                                      .front();
          const double unit = micro_batch_tokens / static_cast<double>(tensor);
          const auto counts = a.count_kinds(architecture::partition(a, testing::layout_of(4))[0]);
          const BlockTime whole = times(c, testing::cluster()).of_layers(counts);
          EXPECT_DOUBLE_EQ(whole.forward.flops, unit * want.forward);
          EXPECT_DOUBLE_EQ(whole.backward.flops,
                           unit * (want.again + want.backward_input + want.backward_weight));
          EXPECT_EQ(whole.backward_input.flops, 0);
          const BlockTime split = times(c, testing::cluster(), true).of_layers(counts);
          EXPECT_DOUBLE_EQ(split.forward.flops, unit * want.forward);
          EXPECT_DOUBLE_EQ(split.backward_input.flops,
                           unit * (want.again_input + want.backward_input));
          EXPECT_DOUBLE_EQ(split.backward_weight.flops,
                           unit * (want.again_weight + want.backward_weight));
          EXPECT_EQ(split.backward.flops, 0);
        }
}

TEST(BlockTimeModel, HeadComputesAllPassesInForward) {
  for (const std::int64_t tensor : {1, 2, 4}) {
    const auto c = of_family(Family::gpt, {.tensor = tensor});
    const BlockTimes parts = times(c, testing::cluster());
    EXPECT_DOUBLE_EQ(parts.head.forward.flops,
                     6.0 * 32 * 96 * micro_batch_tokens / static_cast<double>(tensor));
    EXPECT_EQ(parts.head.backward.total(), 0);
    EXPECT_EQ(parts.embedding.forward.flops, 0);
    EXPECT_EQ(parts.embedding.backward.total(),
              parts.embedding.backward_input.total() + parts.embedding.backward_weight.total());
  }
}

TEST(BlockTimeModel, GpipeDelaysTheHeadGradient) {
  auto c = of_family(Family::gpt, {.tensor = 2, .pipeline = 2});
  const PassTime fused = times(c, testing::cluster()).head.forward;
  c.parallel.schedule = ScheduleKind::gpipe;
  const double products = 2.0 * 32 * 96 * micro_batch_tokens / 2;
  const BlockTime kept = times(c, testing::cluster()).head;
  EXPECT_DOUBLE_EQ(kept.forward.flops, products);
  EXPECT_DOUBLE_EQ(kept.backward.flops, 2 * products);
  EXPECT_NEAR(kept.forward.total() + kept.backward.total(), fused.total(), 1e-12 * fused.total());
  c.parallel.recompute = Recompute::full;
  const BlockTime again = times(c, testing::cluster()).head;
  EXPECT_DOUBLE_EQ(again.backward.flops, 3 * products);
  EXPECT_LT(again.forward.total(), kept.forward.total()) << "the loss's gradient is later";
  EXPECT_GT(again.backward.total(), kept.backward.total());
}

/// Seconds of a micro-batch's messages on the tensor axis, on a rank that has all stages.
Seconds tensor_seconds(const deck::Config& c, const Machine& machine, bool split) {
  const auto a = architecture::describe(c.model);
  const StepCosts costs = step_costs(c, a, part_times(c, a, split, machine), machine);
  Seconds sum = 0;
  for (const BlockTime& stage : costs.stages)
    sum +=
        stage.forward.tensor + (split ? stage.backward_input.tensor + stage.backward_weight.tensor
                                      : stage.backward.tensor);
  return sum;
}

/// The numbers that `check` lists for the tensor axis per micro-batch, all stages: bytes that a
/// ring moves, or the number of messages, where a sum counts as two.
double listed(const deck::Config& c, bool split, bool bytes) {
  const auto a = architecture::describe(c.model);
  double sum = 0;
  for (int rank = 0; rank < c.parallel.pipeline; ++rank)
    for (const TrafficRow& row :
         step_traffic(c, a, testing::shard_of(c, a, rank, 0), split, testing::cluster())) {
      if (row.axis != "tensor" || row.what == "norms and biases: all-reduce" ||
          row.what == "norms of heads: all-reduce")
        continue;  // gradients, once a step
      const bool twice = row.what.ends_with("all-reduce");
      sum += (twice ? 2.0 : 1.0) * static_cast<double>(bytes ? row.bytes : row.operations);
    }
  return sum / 4;  // micro-batches
}

TEST(BlockTimeModel, MessagesMatchTheTrafficOfTheStep) {
  Machine bytes_alone = without_kernels(), number_alone = without_kernels();
  bytes_alone.node.link_latency = 0;
  number_alone.node.link_bandwidth = std::numeric_limits<double>::infinity();
  for (const Family family : {Family::gpt, Family::llama, Family::bert, Family::qwen3})
    for (const Recompute recompute : {Recompute::none, Recompute::full})
      for (const std::int64_t tensor : {2, 4})
        for (const std::int64_t pipeline : {1, 2})
          for (const bool sequence_parallel : {false, true})
            for (const bool split : {false, true}) {
              auto c = of_family(
                  family,
                  {.tensor = tensor, .pipeline = pipeline, .sequence_parallel = sequence_parallel},
                  recompute);
              if (family != Family::gpt && family != Family::bert) c.model.key_value_heads = 4;
              SCOPED_TRACE(text(name_of(family), " ", name_of(recompute), " ", tensor, " ",
                                pipeline, sequence_parallel ? " sequence" : "",
                                split ? " split" : ""));
              const auto t = static_cast<double>(tensor);
              EXPECT_NEAR(tensor_seconds(c, bytes_alone, split) * 50e9 * t / (t - 1),
                          listed(c, split, true), 1e-6 * listed(c, split, true));
              EXPECT_NEAR(tensor_seconds(c, number_alone, split) / (1e-6 * (t + 3) / 2),
                          listed(c, split, false), 1e-6);
            }
}

TEST(BlockTimeModel, KeptInputsAreNotGatheredAgain) {
  const auto c = of_family(Family::gpt, {.tensor = 4, .sequence_parallel = true});
  Machine m = testing::cluster();
  const BlockTime again = times(c, m).layers.front();
  m.software.keeps_gathered = true;
  const BlockTime kept = times(c, m).layers.front();
  // Two products whose outputs the tensor axis splits, with inputs of [64, 32] in fp64.
  const Seconds gather = 0.75 * 64 * 32 * 8 / 50e9 + 1e-6 * 7 / 2;
  EXPECT_NEAR(again.backward.tensor - kept.backward.tensor, 2 * gather, 1e-15);
  EXPECT_EQ(again.forward.tensor, kept.forward.tensor);
}

TEST(BlockTimeModel, OverlapHidesItsShareOfTensorMessages) {
  const auto c = of_family(Family::llama, {.tensor = 2});
  Machine m = testing::cluster();
  const BlockTimes shown = times(c, m);
  m.software.tensor_overlap = 0.75;
  const BlockTimes hidden = times(c, m);
  EXPECT_GT(shown.layers.front().forward.tensor, 0);
  EXPECT_GT(shown.head.forward.tensor, 0);
  EXPECT_DOUBLE_EQ(hidden.layers.front().forward.tensor, shown.layers.front().forward.tensor / 4);
  EXPECT_DOUBLE_EQ(hidden.layers.front().backward.tensor, shown.layers.front().backward.tensor / 4);
  EXPECT_DOUBLE_EQ(hidden.head.forward.tensor, shown.head.forward.tensor / 4);
  EXPECT_EQ(hidden.layers.front().forward.compute, shown.layers.front().forward.compute);
}

/// Causal: 64 micro_batch_tokens see 16 others on average, in two products.
TEST(BlockTimeModel, AttentionGradientRecomputesScores) {
  const auto c = of_family(Family::gpt, {});
  Machine m = testing::cluster();
  m.device.bandwidth = std::numeric_limits<double>::infinity();
  const BlockTime before = times(c, m).layers.front();
  m.device.attention_efficiency /= 2;
  const BlockTime slower = times(c, m).layers.front();
  const Seconds more = 2 * 2.0 * 64 * 16 * 32 / (0.25 * 1e12);
  EXPECT_NEAR(slower.forward.compute - before.forward.compute, more, 1e-6 * more);
  EXPECT_NEAR(slower.backward.compute - before.backward.compute, 2.5 / (63.0 / 73) * more,
              1e-6 * more);
}

/// With a head of 8 numbers, both products of S x S scores per sample and head.
TEST(BlockTimeModel, StoredScoresMoveTheFullSquare) {
  const auto c = of_family(Family::gpt, {});
  Machine m = testing::cluster();
  const BlockTime fused = times(c, m).layers.front();
  m.software.fused_attention = false;
  const BlockTime stored = times(c, m).layers.front();
  const double square = 2 * 2.0 * 32 * 32 * 8 * (2 * 4);
  EXPECT_DOUBLE_EQ(stored.forward.flops - fused.forward.flops, square / 2) << "causal";
  EXPECT_DOUBLE_EQ(stored.backward.flops - fused.backward.flops, square);
  auto masked = c;
  masked.model.dropout = 0.1;
  m.device.launch = 0;
  Machine plain = m;
  plain.software.fused_attention = true;
  // Dropout reads and writes the scores, and a byte of its mask.
  const double scores = 2 * 4 * 32 * 32;
  EXPECT_NEAR((times(masked, m).layers.front().forward.compute -
               times(c, m).layers.front().forward.compute) -
                  (times(masked, plain).layers.front().forward.compute -
                   times(c, plain).layers.front().forward.compute),
              scores * (2 * 8 + 1) / 5e11, 1e-14);
  // Where memory alone counts: the softmax's gradient moves the scores three times, the softmax
  // twice; the products' gradients twice as much as the products. Fused, per token: 96 of query,
  // key and value, 32 of the output and 4 sums; their gradient reads these and 32 of its own, and
  // writes 96.
  m.device.peak_fp64 = plain.device.peak_fp64 = std::numeric_limits<double>::infinity();
  const auto backward_less_twice_forward = [&](const Machine& machine) {
    const BlockTime layer = times(c, machine).layers.front();
    return layer.backward.compute - 2 * layer.forward.compute;
  };
  EXPECT_NEAR(backward_less_twice_forward(m) - backward_less_twice_forward(plain),
              ((3 - 2 * 2) * scores - 64 * ((132 + 128) - 2 * 132)) * 8 / 5e11, 1e-14);
}

TEST(BlockTimeModel, RecomputesUnreadResultsIfTheProgramDoes) {
  Machine m = testing::cluster();
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    const auto c = of_family(Family::gpt, {}, recompute);
    m.software.recomputes_unread = false;
    const BlockTime needed = times(c, m).layers.front();
    m.software.recomputes_unread = true;
    const BlockTime all = times(c, m).layers.front();
    EXPECT_EQ(all.forward.flops, needed.forward.flops);
    const double last_product = 2.0 * 64 * 128 * 32;
    EXPECT_DOUBLE_EQ(all.backward.flops - needed.backward.flops,
                     recompute == Recompute::full ? last_product : 0);
    const BlockTime split = times(c, m, true).layers.front();
    EXPECT_DOUBLE_EQ(split.backward_input.flops + split.backward_weight.flops, all.backward.flops);
  }
}

/// 12 · 32² elements of a layer's matrices: written in fp64, then read and added to a sum.
TEST(BlockTimeModel, UnfusedAccumulationMovesMoreBytes) {
  const auto c = of_family(Family::gpt, {});
  Machine m = testing::cluster();
  m.device.peak_fp64 = 1e18;  // products are bound by memory
  m.device.launch = 0;
  const Seconds fused = times(c, m).layers.front().backward.compute;
  m.software.fused_accumulation = false;
  const double elements = 12 * 32 * 32;
  EXPECT_NEAR(times(c, m).layers.front().backward.compute - fused,
              elements * ((8 - 2 * 8) + (8 + 2 * 8)) / 5e11, 1e-14);
  m.software.gradient_bytes = 2;
  EXPECT_NEAR(times(c, m).layers.front().backward.compute - fused,
              elements * ((8 - 2 * 8) + (8 + 2 * 2)) / 5e11, 1e-14);
}

TEST(BlockTimeModel, CountsTrafficOfKernelsAndLogits) {
  const auto c = of_family(Family::gpt, {.tensor = 2});
  Machine m = testing::cluster();
  m.device.launch = 0;
  m.device.peak_fp64 = std::numeric_limits<double>::infinity();
  const BlockTimes before = times(c, m);
  m.software.traffic_ratio = 2;
  const BlockTime twice = times(c, m).layers.front();
  m.software.traffic_ratio = 3;
  const BlockTime thrice = times(c, m).layers.front();
  const Seconds each = twice.forward.compute - before.layers.front().forward.compute;
  // At least two norms and two residual sums, which read and write [64, 32].
  EXPECT_GT(each, (2 * 2 + 2 * 3) * 64 * 32 * 8 / 5e11);
  EXPECT_NEAR(thrice.forward.compute - twice.forward.compute, each, 1e-15);
  m.software.traffic_ratio = 1;
  m.software.logit_traffic = 100;
  EXPECT_NEAR(times(c, m).head.forward.compute - before.head.forward.compute,
              64.0 * 96 / 2 * (100 - 3 * 8) / 5e11, 1e-14);
}

/// 8 experts of 48 columns, 2 active, in each layer.
deck::Config with_experts(const Axes& axes, std::int64_t expert = 1) {
  deck::Config c = of_family(Family::llama, axes);
  c.model.experts.number = 8;
  c.model.experts.active = 2;
  c.model.experts.feed_forward = 48;
  c.parallel.expert = expert;
  return c;
}

BlockTime layer_of(const deck::Config& c, const Machine& m) {
  return times(c, m).layers.front();
}

TEST(BlockTimeModel, ExpertsComputeTheMeanNumberOfRowsTimesTheImbalance) {
  const double of_experts = 2 * micro_batch_tokens * 2 * (2 * 32 * 48 + 48 * 32);
  Machine m = testing::cluster();
  const BlockTime whole = layer_of(with_experts({.data = 4}), m);
  for (const std::int64_t expert : {2, 4}) {
    const auto c = with_experts({.data = 4}, expert);
    m.software.expert_imbalance = 1;
    const BlockTime equal = layer_of(c, m);
    EXPECT_DOUBLE_EQ(equal.forward.flops, whole.forward.flops);
    EXPECT_DOUBLE_EQ(equal.backward.flops, whole.backward.flops);
    m.software.expert_imbalance = 1.5;
    const BlockTime uneven = layer_of(c, m);
    EXPECT_DOUBLE_EQ(uneven.forward.flops, equal.forward.flops + 0.5 * of_experts);
    EXPECT_DOUBLE_EQ(uneven.backward.flops, equal.backward.flops + of_experts);
    EXPECT_GT(uneven.forward.compute, equal.forward.compute);
    EXPECT_GT(uneven.forward.tensor, equal.forward.tensor);
  }
}

TEST(BlockTimeModel, EachExpertHasItsOwnKernelsUnlessProductsAreGrouped) {
  const auto c = with_experts({});
  Machine m = testing::cluster();
  const BlockTime apart = layer_of(c, m);
  m.software.grouped_products = true;
  const BlockTime grouped = layer_of(c, m);
  EXPECT_LT(grouped.forward.compute, apart.forward.compute - 2 * 7 * m.device.launch);
  EXPECT_DOUBLE_EQ(grouped.forward.flops, apart.forward.flops);
  m.software.host_per_layer = 0.1;
  EXPECT_DOUBLE_EQ(layer_of(c, m).forward.total(), 0.1);
  m.software.grouped_products = false;
  EXPECT_GT(layer_of(c, m).forward.total(), 0.15) << "14 launches more";
}

/// Half of a dense layer's messages are those of attention. Each rank has 32 tokens of 32 columns
/// in fp64, and two copies of them.
TEST(BlockTimeModel, CopiesTravelToTheirExpertsAndBack) {
  const Axes axes{.tensor = 2, .data = 8, .sequence_parallel = true};
  constexpr double copies = 32 * 2 * 32 * 8;
  Machine m = without_kernels();
  m.software.second_axis = SecondAxis::data;
  for (const std::int64_t expert : {1, 2, 4}) {
    auto c = with_experts(axes, expert);
    const NetworkTime network(m, c.parallel);
    const BlockTime dense = layer_of(of_family(Family::llama, axes), m);
    m.software.expert_dispatch = ExpertDispatch::copies;
    const auto expect = [&](bool split, Seconds exchange) {
      c.model.experts.split = split;
      const BlockTime layer = layer_of(c, m);
      EXPECT_NEAR(layer.forward.tensor, dense.forward.tensor / 2 + 2 * exchange, 1e-12);
      EXPECT_NEAR(layer.backward.tensor, dense.backward.tensor / 2 + 2 * exchange, 1e-12);
    };
    expect(false, network.among_expert_ranks(copies));
    expect(true,
           network.among_experts(copies) +
               network.collective(architecture::Collective::all_gather, 2 * copies, Axis::tensor));
  }
}

/// Tensor ranks that split the columns of experts compute as much as with whole experts.
TEST(BlockTimeModel, SplitExpertsComputeAllRowsInNarrowProducts) {
  auto c = with_experts({.tensor = 2, .data = 2, .sequence_parallel = true}, 2);
  Machine m = testing::cluster();
  m.software.expert_dispatch = ExpertDispatch::copies;
  const BlockTime whole = layer_of(c, m);
  c.model.experts.split = true;
  const BlockTime divided = layer_of(c, m);
  EXPECT_DOUBLE_EQ(divided.forward.flops, whole.forward.flops);
  EXPECT_DOUBLE_EQ(divided.backward.flops, whole.backward.flops);
  EXPECT_GT(divided.forward.compute, whole.forward.compute);
}

/// In each of the four steps of the ring, three quarters of the queries take part on average, whose
/// sums in fp64 are read and written.
TEST(BlockTimeModel, RingAddsPartialResults) {
  auto c = of_family(Family::gpt, {});
  c.parallel.context = 4;
  Machine m = testing::cluster();
  m.device.launch = 0;
  // Other kernels take no time, and the ratio concerns those that move bytes.
  m.kernels.norm = m.kernels.residual = m.kernels.activation = 1e300;
  const Seconds once = layer_of(c, m).forward.compute;
  m.software.traffic_ratio = 2;
  EXPECT_NEAR(layer_of(c, m).forward.compute - once, 4 * 2 * 0.75 * 16 * 32 * 8 / 5e11, 1e-14);
}

TEST(BlockTimeModel, CountsTheHostIfSlowerThanTheKernels) {
  const auto c = of_family(Family::gpt, {});
  Machine m = testing::cluster();
  EXPECT_EQ(times(c, m).layers.front().forward.host, 0);
  m.software.host_per_layer = 0.1;
  const BlockTimes slow = times(c, m);
  EXPECT_DOUBLE_EQ(slow.layers.front().forward.total(), 0.1);
  EXPECT_NEAR(slow.layers.front().backward.total(), 0.2, 0.05) << "about twice as many kernels";
  EXPECT_DOUBLE_EQ(slow.head.forward.total(), 0.3);
  m.software.host_per_layer = 1e-9;
  EXPECT_EQ(times(c, m).layers.front().forward.host, 0) << "hidden";
}

}  // namespace
}  // namespace trireme::plan
