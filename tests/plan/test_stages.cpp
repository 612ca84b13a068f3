#include <trireme/architecture/shard.hpp>
#include <trireme/plan/cost.hpp>
#include <trireme/plan/stages.hpp>

#include <gtest/gtest.h>

#include "plan/example.hpp"
#include "support/layouts.hpp"

namespace trireme::plan {
namespace {

architecture::Architecture model(std::int64_t layers) {
  auto config = testing::config_of({});
  config.model.layers = layers;
  return architecture::describe(config.model);
}

TEST(Stages, FlopsOfAllAreThoseOfTheModel) {
  for (const int stages : {1, 2, 3, 5, 9})
    for (const Family family : {Family::gpt, Family::bert}) {
      auto config = testing::config_of({});
      config.model.layers = 5;
      config.model.family = family;
      const auto a = architecture::describe(config.model);
      double sum = 0;
      for (const StageFlops& f :
           stage_flops(a, architecture::partition(a, testing::layout_of(stages))))
        sum += f.sum();
      EXPECT_NEAR(sum, a.model_flops_per_token(), 1e-12 * sum) << stages;
    }
}

TEST(Stages, GroupsTileTheModel) {
  for (const int stages : {1, 2, 3, 5, 9, 64})
    for (const std::int64_t layers : {1, 5, 64, 130}) {
      const auto a = model(layers);
      Stage next = 0;
      std::int64_t held = 0, parameters = 0;
      for (const StageGroup& g :
           group_stages(a, architecture::partition(a, testing::layout_of(stages)))) {
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

TEST(Stages, EqualNeighboursAreOneGroup) {
  const auto a = model(64);
  const auto groups = group_stages(a, architecture::partition(a, testing::layout_of(64)));
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[1].first, 1);
  EXPECT_EQ(groups[1].last, 62);
  EXPECT_EQ(groups[1].layers_each, 1);
}

}  // namespace
}  // namespace trireme::plan
