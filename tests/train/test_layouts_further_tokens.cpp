// Modules that predict further tokens: layouts against one rank, and equal bits of schedules and of
// partitions with the modules in any stage.
#include "train/layouts.hpp"

namespace trireme::train {
namespace {

constexpr const char* two_tokens = "model.predicts=2";
constexpr const char* three_tokens = "model.predicts=3 model.predict_weight=0.8";
constexpr const char* experts_and_two_tokens =
    "model.key_value_rank=12 model.query_rank=18 model.rotary_size=4 model.value_size=6 "
    "experts.number=6 experts.active=2 experts.feed_forward=24 experts.groups=3 "
    "experts.active_groups=2 experts.first_layer=1 experts.bias_rate=0.01 model.predicts=2";

class FurtherLayouts : public Layouts {
 protected:
  /// `layouts` of ten steps.
  void expect_the_answers(std::vector<Layout> layouts) {
    for (Layout& layout : layouts) {
      layout.steps = 10;
      if (layout.ranks() == runtime().ranks()) expect_the_same_answer(layout);
    }
  }
};

TEST_F(FurtherLayouts, MatchOneRank) {
  using enum OptimizerKind;
  using enum Recompute;
  const Family g = Family::gpt, l = Family::llama, d = Family::deepseek_v3, q = Family::qwen3;
  const char* const heads_of_eight = "model.head_size=8 model.predicts=2";
  const auto with = [](Family family, int groups, const char* property, Layout layout,
                       std::vector<std::string> more = {}) {
    layout.family = family;
    layout.key_value_heads = groups;
    layout.property = property;
    layout.more = std::move(more);
    return layout;
  };
  const auto over = [](int context, Layout layout) {
    layout.context = context;
    return layout;
  };
  expect_the_answers(
      {with(g, 3, two_tokens, {1, 1, 1, "1f1b", 1, false, true, full}),
       with(g, 3, two_tokens, {2, 1, 1, "1f1b", 1, true, true, none}),
       with(g, 3, three_tokens, {2, 1, 1, "gpipe", 1, false, false, selective}),
       with(g, 3, three_tokens, {1, 2, 1, "gpipe", 1, false, true, full}),
       with(l, 2, three_tokens, {1, 2, 1, "zb-h1", 1, false, false, full}),
       with(l, 2, three_tokens, {1, 2, 1, "interleaved", 2, false, true, none}),
       with(l, 2, three_tokens, {1, 2, 1, "zb-v", 2, false, false, selective}),
       with(q, 2, heads_of_eight, {1, 1, 2, "1f1b", 1, false, false, none, Sharding::weights}),
       with(q, 2, heads_of_eight, {1, 2, 1, "1f1b", 1, false, false, none, Sharding::none, muon}),
       with(d, 6, experts_and_two_tokens, {2, 1, 1, "1f1b", 1, true, false, none}),
       with(d, 6, experts_and_two_tokens, {1, 2, 1, "1f1b", 1, false, false, selective}),
       with(d, 6, experts_and_two_tokens, {1, 1, 2, "1f1b", 1, false, false, full},
            {"parallel.expert=2"}),
       over(2, with(l, 2, three_tokens, {1, 1, 1, "1f1b", 1, false, true, full})),
       over(2, with(g, 3, two_tokens, {1, 1, 1, "1f1b", 1, false, true, none})),
       with(l, 2, two_tokens, {1, 3, 1, "v-half", 2, false, false, none}),
       with(g, 3, three_tokens, {3, 1, 1, "1f1b", 1, true, false, full}),
       with(g, 3, three_tokens, {1, 1, 3, "1f1b", 1, false, true, none, Sharding::gradients}),
       with(l, 2, three_tokens, {2, 2, 1, "zb-h1", 1, true, false, full, Sharding::none, lamb}),
       with(l, 2, three_tokens, {2, 2, 1, "gpipe", 1, true, true, none}),
       with(g, 3, two_tokens, {2, 2, 1, "interleaved", 2, false, true, selective}),
       with(d, 6, experts_and_two_tokens, {2, 2, 1, "zb-v", 2, true, false, none}),
       with(d, 6, experts_and_two_tokens,
            {1, 2, 2, "1f1b", 1, false, true, none, Sharding::weights}, {"parallel.expert=2"}),
       over(2, with(l, 2, three_tokens, {2, 1, 1, "1f1b", 1, true, false, none})),
       over(2,
            with(l, 2, two_tokens, {1, 2, 1, "zb-h1", 1, false, true, none, Sharding::optimizer})),
       with(l, 2, three_tokens, {3, 2, 1, "1f1b", 1, true, true, none}),
       with(g, 3, three_tokens, {2, 3, 1, "v-min", 2, true, false, full})});
}

/// The modules at the end of any stage, in stages of their own, and apart from the head.
TEST_F(FurtherLayouts, PartitionsKeepTheBits) {
  const int ranks = runtime().ranks();
  for (const auto& [schedule, stages, partition] : {std::tuple{"1f1b", 2, "[7, 0]"},
                                                    {"gpipe", 2, "[5, 2]"},
                                                    {"zb-h1", 2, "[6, 1]"},
                                                    {"interleaved", 4, "[2, 3, 1, 1]"},
                                                    {"zb-v", 4, "[0, 6, 1, 0]"},
                                                    {"zb-h1", 3, "[5, 1, 1]"},
                                                    {"1f1b", 3, "[6, 0, 1]"},
                                                    {"2bw", 3, "[4, 2, 1]"}}) {
    const int chunks = stages == 4 ? 2 : 1;
    if (stages / chunks != ranks) continue;
    Layout layout{1, ranks, 1, schedule, chunks};
    layout.family = Family::llama;
    layout.property = three_tokens;
    const Outcome by_cost = run(layout, runtime().world());
    layout.more = {text("parallel.partition=", partition)};
    SCOPED_TRACE(layout.name());
    const Outcome by_hand = run(layout, runtime().world());
    if (runtime().rank() > 0) continue;
    EXPECT_EQ(by_hand.trace, by_cost.trace);
    EXPECT_EQ(by_hand.weights, by_cost.weights);
  }
}

TEST_F(FurtherLayouts, SchedulesAndPipelinesKeepTheBits) {
  for (const Fixed& f : {Fixed{1, 1, false, true, Family::gpt, 3, two_tokens},
                         {2, 1, true, false, Family::llama, 2, three_tokens},
                         {1, 2, false, false, Family::deepseek_v3, 6, experts_and_two_tokens}})
    expect_the_same_bits(f);
}

/// Each term of an evaluation, of a number of samples that no micro-batch divides.
TEST_F(FurtherLayouts, EvaluationsMatchOneRank) {
  const std::vector<std::int32_t> bytes(257, 1);
  const auto evaluated = [&](std::vector<std::string> keys, grid::Communicator& world) {
    const std::vector<std::string> model{"model.family=llama", "model.vocabulary=257",
                                         "model.predicts=3"};
    keys.insert(keys.end(), model.begin(), model.end());
    const deck::Config config = small_config(12, 2, world.size(), keys);
    Rig rig(config, tokens_, world);
    return rig.engine->evaluate(data::Windows(tokens_, config.model.sequence), 5, bytes);
  };
  const int ranks = runtime().ranks();
  const Evaluation found = evaluated({text("parallel.pipeline=", ranks)}, runtime().world());
  const auto self = grid::Communicator::self();
  const Evaluation alone = evaluated({}, *self);
  ASSERT_EQ(found.losses.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(found.losses[i].name, alone.losses[i].name);
    EXPECT_EQ(found.losses[i].count, alone.losses[0].count);
    EXPECT_NEAR(found.losses[i].mean(), alone.losses[i].mean(), 1e-12 * alone.losses[i].mean());
    EXPECT_GT(found.losses[i].mean(), 0);
  }
}

}  // namespace
}  // namespace trireme::train
