#include <trireme/plan/gather_time.hpp>
#include <trireme/plan/memory.hpp>
#include <trireme/plan/program.hpp>
#include <trireme/plan/step_time.hpp>
#include <trireme/plan/traffic.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "plan/example.hpp"
#include "plan/speeds.hpp"

/// Gathers of weights that replicas divide: how many there are, and what hides behind passes.
namespace trireme::plan {
namespace {

using testing::config_of;
using testing::costs_of;
using testing::predicted;

Machine nccl_cluster() {
  Machine m = testing::cluster();
  m.software.transport = TransportKind::nccl;
  return m;
}

/// Gathers of layers in a step of a pipeline rank, as the order of its passes says.
std::int64_t counted(const deck::Config& c, const Machine& m, int rank) {
  const auto a = architecture::describe(c.model);
  const architecture::Shard shard = architecture::make_shard(a, c.parallel, rank, 0);
  const auto arrays = architecture::rank_arrays(a, shard);
  const auto placement = architecture::place(a, shard, arrays);
  const architecture::BucketCut cut(a, shard, arrays, placement, 1 << 16,
                                    static_cast<int>(c.parallel.data), true,
                                    architecture::CutOf::weights);
  const auto places = architecture::arranged_weights(cut, architecture::division_of(c), 0);
  const auto gathers = unit_gathers(c, a, shard, places, layer_programs(c, a, shard, false, m), m);
  std::int64_t sum = 0;
  for (std::size_t u = 0; u < gathers.size(); ++u) {
    if (a.is_layer(places.units()[u].block)) sum += gathers[u];
  }
  return sum;
}

TEST(GatherTime, RefillsMatchThePrograms) {
  const Machine m = nccl_cluster();
  for (const ScheduleKind schedule : {ScheduleKind::one_forward_one_backward, ScheduleKind::gpipe})
    for (const int p : {1, 2, 4})
      for (const int layers : {1, 2, 3, 5})
        for (const int micro_batches : {1, 2, 3, 8}) {
          deck::Config c = config_of({.pipeline = p, .data = 2});
          c.parallel.schedule = schedule;
          c.parallel.shard = Sharding::weights;
          c.model.layers = p * layers;
          c.batch.global = c.batch.micro * c.parallel.data * micro_batches;
          for (int rank = 0; rank < p; ++rank) {
            const Refills refills = refills_of(c.parallel, rank, layers, micro_batches);
            const double held = std::min(2, layers);
            const double expected =
                (refills.forward + refills.backward) * held + 2.0 * micro_batches * (layers - held);
            EXPECT_EQ(static_cast<double>(counted(c, m, rank)), expected)
                << name_of(schedule) << " pipeline " << p << " rank " << rank << " layers "
                << layers << " micro-batches " << micro_batches;
          }
        }
}

/// A random layout with several replicas.
deck::Config random_config(std::mt19937& random) {
  const auto one_of = [&](auto... values) {
    const std::array all{values...};
    return all[std::uniform_int_distribution<std::size_t>(0, all.size() - 1)(random)];
  };
  testing::Axes axes{.tensor = one_of(1, 2),
                     .pipeline = one_of(1, 2, 4),
                     .data = one_of(2, 8, 32),
                     .sequence_parallel = one_of(0, 1) == 1,
                     .tied = one_of(0, 1) == 1};
  const auto schedule = one_of(ScheduleKind::gpipe, ScheduleKind::one_forward_one_backward,
                               ScheduleKind::interleaved, ScheduleKind::zb_h1, ScheduleKind::zb_v);
  const bool chunks = schedule == ScheduleKind::interleaved || schedule == ScheduleKind::zb_v;
  if (axes.pipeline > 1 && chunks) axes.chunks = 2;
  deck::Config c = config_of(axes);
  if (axes.pipeline > 1) c.parallel.schedule = schedule;
  c.model.layers = one_of(8, 16);
  c.model.hidden = one_of(128, 512);
  c.model.feed_forward = 4 * c.model.hidden;
  c.precision.compute = one_of(DType::bf16, DType::fp32);
  c.parallel.recompute = one_of(Recompute::none, Recompute::full);
  c.batch.global = c.batch.micro * axes.data * one_of(1, 4, 16);
  return c;
}

TEST(GatherTime, DividedWeightsAreNotFasterThanADividedOptimizer) {
  std::mt19937 random(5);
  int longer = 0, hidden = 0;
  for (int n = 0; n < 150; ++n) {
    deck::Config c = random_config(random);
    Machine m = nccl_cluster();
    if (n % 3 == 0) m.software.transport = TransportKind::mpi;
    m.software.gradient_overlap = n % 2 == 0 ? 0 : 0.5;
    const auto seconds = [&](Sharding shard) {
      c.parallel.shard = shard;
      const StepTime time = predicted(c, m);
      EXPECT_NEAR(std::accumulate(time.shares.begin(), time.shares.end(), 0.0), time.seconds,
                  1e-9 * time.seconds);
      EXPECT_GE(time.of(Cause::bubble), -1e-9 * time.seconds);
      EXPECT_NEAR(estimated_seconds(c, costs_of(c, m)), time.seconds, 0.1 * time.seconds);
      return time.seconds;
    };
    const Seconds optimizer = seconds(Sharding::optimizer);
    EXPECT_EQ(seconds(Sharding::gradients), optimizer);
    const Seconds weights = seconds(Sharding::weights);
    EXPECT_GE(weights, optimizer * (1 - 1e-12));
    longer += weights > 1.05 * optimizer ? 1 : 0;
    m.software.gather_overlap = 0;
    EXPECT_GE(seconds(Sharding::optimizer), optimizer);
    hidden += seconds(Sharding::weights) > weights ? 1 : 0;
  }
  EXPECT_GT(longer, 50);
  EXPECT_GT(hidden, 50);
}

/// One rank per node of 8: 8 layers, each on a network of 100 bytes/s … and behind a layer before.
TEST(GatherTime, GatherOverlapsWithThePreviousLayer) {
  deck::Config c = config_of({.data = 8});
  c.model.layers = 8;
  c.parallel.shard = Sharding::weights;
  c.batch.global = 4 * c.batch.micro * c.parallel.data;
  const double parameters = 12 * 32 * 32 + 13 * 32;  // of a layer
  const double ends = (96 + 32) * 32 + 2 * 32;       // tied: gathered once
  const auto gather = [](double n) { return 7.0 / 8 * n * 8 / 50e9 + 1e-6 * 11 / 2; };
  Machine m = nccl_cluster();
  const auto a = architecture::describe(c.model);
  const BlockTimes parts = part_times(c, a, false, m);
  const Seconds each = gather(parameters), layer = parts.layers.front().forward.total();
  const auto waits = [&](double overlap) {
    m.software.gather_overlap = overlap;
    return costs_of(c, m).stages.front();
  };
  // Of 4 micro-batches, the first gathers 8 layers, the others 6; each backward pass 6.
  EXPECT_NEAR(waits(0).forward.data, ((8 + 3 * 6) * each + gather(ends)) / 4, 1e-15);
  EXPECT_NEAR(waits(0).backward.data, 6 * each, 1e-15);
  const Seconds shown = each - std::min(each, layer);
  const Seconds first = each - std::min(each, parts.embedding.forward.total());
  EXPECT_GT(shown + first, 0) << "the test is of something";
  EXPECT_NEAR(waits(1).forward.data, ((7 + 3 * 6) * shown + first + gather(ends)) / 4, 1e-15);
  EXPECT_NEAR(waits(0.5).backward.data,
              6 * (each - 0.5 * std::min(each, parts.layers.front().backward.total())), 1e-15);
  // With MPI, nothing moves by itself.
  m.software.transport = TransportKind::mpi;
  EXPECT_NEAR(waits(1).backward.data, 6 * each, 1e-15);
}

/// 16 replicas on two nodes: weights stay on a node's links, all gradients cross the network.
TEST(GatherTime, GroupsKeepGathersWithinANode) {
  deck::Config c = config_of({.data = 16});
  c.parallel.shard = Sharding::weights;
  Machine m = nccl_cluster();
  m.software.gather_overlap = 0;
  m.network.bandwidth = 10e9;
  const StepCosts all = costs_of(c, m);
  c.parallel.shard_group = 8;
  const StepCosts groups = costs_of(c, m);
  EXPECT_LT(groups.stages.front().forward.data, all.stages.front().forward.data / 2);
  EXPECT_DOUBLE_EQ(groups.reductions.front(), 2 * all.reductions.front());
  m.node.link_bandwidth *= 4;
  m.node.link_latency /= 4;
  EXPECT_LT(costs_of(c, m).stages.front().forward.data, groups.stages.front().forward.data / 3);
}

/// Each rank has its own experts, so that only other arrays are gathered, trained or not.
TEST(GatherTime, FrozenExpertsAreGatheredAmongTheRanksThatHaveThem) {
  deck::Config c = config_of({.data = 8, .key_value_heads = 2});
  c.model.experts.number = 8;
  c.model.experts.active = 2;
  c.model.experts.feed_forward = 512;
  c.parallel.shard = Sharding::weights;
  c.parallel.expert = 8;
  Machine m = nccl_cluster();
  m.software.gather_overlap = 0;
  const auto waits = [&] {
    const BlockTime stage = costs_of(c, m).stages.front();
    return stage.forward.data + stage.backward.data;
  };
  const Seconds trained = waits();
  c.model.frozen = {"layers.*.experts.*"};
  EXPECT_NEAR(waits(), trained, 1e-9 * trained);
  c.parallel.expert = 1;
  EXPECT_GT(waits(), trained) << "all ranks have all experts, which are gathered";
}

/// A program that sums gradients after each of four micro-batches does so in three passes more.
TEST(GatherTime, SumsOfEachPassAddToTheBackwardPasses) {
  deck::Config c = config_of({.data = 2});
  c.parallel.shard = Sharding::weights;
  Machine m = nccl_cluster();
  const StepCosts once = costs_of(c, m);
  m.software.sums_each_pass = true;
  const StepCosts each = costs_of(c, m);
  EXPECT_EQ(each.reductions, once.reductions);
  EXPECT_NEAR(each.stages.front().backward.data - once.stages.front().backward.data,
              once.reductions.front() * 3 / 4, 1e-12);
}

/// Bytes of new weights arrive while the next step's first passes are computed; later stages wait
/// for their first inputs anyway.
TEST(GatherTime, NewWeightsOverlapWithTheFirstPasses) {
  deck::Config c = config_of({.pipeline = 4, .data = 8, .tied = false});
  c.model.layers = 16;
  c.parallel.shard = Sharding::optimizer;
  Machine m = nccl_cluster();
  const auto gathers = [&] { return costs_of(c, m).gathers; };
  m.software.gather_overlap = 0;
  const std::vector<Seconds> shown = gathers();
  m.software.gather_overlap = 1;
  const std::vector<Seconds> late = gathers();
  EXPECT_GT(late.front(), 0) << "the first layer waits";
  for (std::size_t r = 0; r < 4; ++r) EXPECT_LT(late[r], shown[r]) << r;
  EXPECT_LT(late.back(), late.front());
  m.network.bandwidth *= 1e-4;
  m.node.link_bandwidth *= 1e-4;
  const std::vector<Seconds> slow = gathers();
  const StepCosts costs = costs_of(c, m);
  EXPECT_GT(slow.front(), 100 * costs.stages.front().forward.total()) << "passes hide little";
}

}  // namespace
}  // namespace trireme::plan
