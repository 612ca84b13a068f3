#include <trireme/architecture/shard.hpp>
#include <trireme/plan/cost.hpp>
#include <trireme/plan/stages.hpp>
#include <trireme/schedule/generate.hpp>

#include <gtest/gtest.h>

#include "plan/example.hpp"
#include "support/layouts.hpp"

namespace trireme::plan {
namespace {

using architecture::HeadGradient;

architecture::Architecture model(std::int64_t layers) {
  auto config = testing::config_of({});
  config.model.layers = layers;
  return architecture::describe(config.model);
}

TEST(Stages, FlopsSumToTheModel) {
  struct Model {
    Family family = Family::gpt;
    std::int64_t window = 0;
    std::int64_t full_attention_every = 0;
    std::int64_t shared_layers = 0;
  };
  for (const int stages : {1, 2, 3, 5, 9})
    for (const Model& model :
         {Model{}, {Family::bert}, {Family::gpt, 3, 2}, {Family::gpt, 0, 0, 2}}) {
      auto config = testing::config_of({});
      config.model.layers = 5;
      config.model.family = model.family;
      config.model.window = model.window;
      config.model.full_attention_every = model.full_attention_every;
      config.model.shared_layers = model.shared_layers;
      const auto a = architecture::describe(config.model);
      const auto layers = architecture::partition(a, testing::layout_of(stages));
      for (const HeadGradient head :
           {HeadGradient::with_losses, HeadGradient::kept, HeadGradient::again,
            HeadGradient::shared, HeadGradient::shared_again}) {
        double sum = 0;
        for (const StageFlops& f : stage_flops(a, layers, {}, head)) sum += f.sum();
        EXPECT_NEAR(sum, a.model_flops_per_token(), 1e-12 * sum) << stages;
      }
    }
}

/// A frozen matrix has no gradient, and layers before the first trained array no backward pass.
TEST(Stages, FrozenLayersHaveFewerPasses) {
  auto config = testing::config_of({});
  config.model.layers = 6;
  config.model.tied_embeddings = false;
  config.model.frozen = {"embedding", "layers.0-3", "layers.5"};
  const auto a = architecture::describe(config.model);
  const auto flops = stage_flops(a, {{0, 4}, {4, 1}, {5, 1}});
  EXPECT_EQ(flops[0].backward_input, 0);
  EXPECT_EQ(flops[0].backward_weight, 0);
  EXPECT_DOUBLE_EQ(flops[0].forward, 4 * flops[1].forward);
  EXPECT_GT(flops[1].backward_weight, 0);
  EXPECT_EQ(flops[2].backward_weight, 0);
  EXPECT_DOUBLE_EQ(flops[2].backward_input, flops[1].backward_input);
  double sum = flops[0].forward + flops[1].backward_input * 4;  // as if they had backward passes
  for (std::size_t s = 1; s < flops.size(); ++s) sum += flops[s].sum();
  EXPECT_NEAR(sum, a.model_flops_per_token(), 1e-12 * sum);
}

/// Per token, gpt's head has D·V products in each of three passes.
TEST(Stages, HeadPassesAreThirdsOrAllForward) {
  const auto a = model(5);
  const auto layers = architecture::partition(a, testing::layout_of(2));
  const double products = 2.0 * static_cast<double>(a.model.hidden * a.model.vocabulary);
  const auto last = [&](HeadGradient head) { return stage_flops(a, layers, {}, head).back(); };
  const StageFlops whole = last(HeadGradient::with_losses);
  for (const HeadGradient later : {HeadGradient::kept, HeadGradient::again}) {
    const StageFlops thirds = last(later);
    EXPECT_DOUBLE_EQ(whole.forward - thirds.forward, 2 * products);
    EXPECT_DOUBLE_EQ(thirds.backward_input - whole.backward_input, products);
    EXPECT_DOUBLE_EQ(thirds.backward_weight - whole.backward_weight, products);
    EXPECT_EQ(thirds.again, later == HeadGradient::again ? products : 0);
  }
  EXPECT_EQ(whole.again, 0);
}

/// Where the last stage's backward pass follows its forward pass, only the memory depends on the
/// time of the head's gradient; with gpipe it does not follow.
TEST(Stages, HeadGradientIsDelayedIfOtherPassesComeFirst) {
  using namespace schedule;
  for (const auto kind :
       {ScheduleKind::gpipe, ScheduleKind::one_forward_one_backward, ScheduleKind::interleaved,
        ScheduleKind::zb_h1, ScheduleKind::zb_v, ScheduleKind::v_half, ScheduleKind::v_min})
    for (const int p : {2, 3, 4, 6})
      for (const int m : {2, 6, 12}) {
        deck::ParallelConfig parallel = testing::layout_of(p, 1);
        parallel.schedule = kind;
        parallel.chunks = schedule_of(kind).least_chunks;
        const layout::StageMap map = parallel.stage_map();
        const Program program =
            generate(kind, {p, m, static_cast<int>(parallel.chunks), false, {}, map.placement});
        const auto& row = program.ranks[static_cast<std::size_t>(map.rank_of(map.last_stage()))];
        bool follows = true;
        for (std::size_t i = 0; i < row.size(); ++i)
          if (row[i].op == Op::forward && row[i].stage == map.last_stage())
            follows = follows && row[i + 1].op != Op::forward &&
                      row[i + 1].op != Op::backward_weight && row[i + 1].micro == row[i].micro &&
                      row[i + 1].stage == row[i].stage;
        EXPECT_EQ(architecture::head_gradient(parallel) == HeadGradient::with_losses, follows)
            << name_of(kind) << " p " << p << " m " << m;
      }
}

TEST(Stages, GroupsTileTheModel) {
  for (const int stages : {1, 2, 3, 5, 9, 64})
    for (const std::int64_t layers : {1, 5, 64, 130}) {
      const auto a = model(layers);
      Stage next = 0;
      std::int64_t held = 0, parameters = 0;
      for (const StageGroup& g : group_stages(a, testing::layout_of(stages))) {
        EXPECT_EQ(g.first, next);
        EXPECT_EQ(g.layers.offset, held);
        EXPECT_EQ(g.layers.extent, g.layers_each * g.count());
        next = g.last + 1;
        held += g.layers.extent;
        parameters += g.parameters * g.count();
      }
      EXPECT_EQ(next, stages);
      EXPECT_EQ(held, layers);
      EXPECT_EQ(parameters, a.parameters());
    }
}

TEST(Stages, SharedVocabularyMakesStagesEqual) {
  const auto a = model(64);
  auto parallel = testing::layout_of(16);
  parallel.vocabulary = VocabularyPlacement::pipeline;
  std::int64_t parameters = 0;
  for (const StageGroup& g : group_stages(a, parallel)) {
    EXPECT_EQ(g.layers_each, 4);
    EXPECT_DOUBLE_EQ(g.flops, a.model_flops_per_token() / 16);
    parameters += g.parameters * g.count();
  }
  EXPECT_EQ(parameters, a.parameters());
}

TEST(Stages, EqualNeighboursFormOneGroup) {
  const auto a = model(64);
  const auto groups = group_stages(a, testing::layout_of(64));
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[1].first, 1);
  EXPECT_EQ(groups[1].last, 62);
  EXPECT_EQ(groups[1].layers_each, 1);
}

}  // namespace
}  // namespace trireme::plan
