// The context axis against one rank: training, evaluation and a long sample.
#include "train/layouts.hpp"

namespace trireme::train {
namespace {

/// Samples of 37 tokens over 2, 3 or 4 ranks, in chunks of different lengths: with each other axis,
/// windows, heads that share keys and values, and bert, whose masked tokens and pairs are shared.
TEST_F(Layouts, MatchOneRankWithContextParallelism) {
  using enum OptimizerKind;
  using enum Recompute;
  const auto with = [](int context, Layout layout, const char* order = "") {
    layout.context = context;
    layout.order = order;
    return layout;
  };
  const Family g = Family::gpt, l = Family::llama, b = Family::bert, m = Family::mistral;
  for (const Layout& layout :
       {with(2, {}),
        with(2, {1, 1, 1, "1f1b", 1, false, false, selective, Sharding::optimizer, lamb, l, 1}),
        with(2, {1, 1, 1, "1f1b", 1, false, true, full, Sharding::none, adamw, m, 3,
                 "model.window=17"}),
        with(2, {1, 1, 1, "1f1b", 1, false, true, none, Sharding::none, adamw, b}),
        with(3, {1, 1, 1, "1f1b", 1, false, true, none, Sharding::optimizer, adamw, l, 2}),
        with(3, {1, 1, 1, "1f1b", 1, false, true, none, Sharding::none, adamw, b}),
        with(4, {1, 1, 1, "1f1b", 1, false, false, none, Sharding::none, adamw, m, 3,
                 "model.window=17"}),
        with(2, {1, 1, 1, "1f1b", 1, false, true, none, Sharding::none, adamw, Family::gemma2, 2,
                 "model.window=17"}),
        with(2, {2, 1, 1, "1f1b", 1, true, true, none, Sharding::none, adamw, g},
             "context, tensor"),
        with(2, {1, 2, 1, "zb-h1", 1, false, true, full, Sharding::optimizer, adamw, l, 3},
             "pipeline, context"),
        with(2, {1, 1, 2, "1f1b", 1, false, true, none, Sharding::optimizer, adamw, b},
             "data, context"),
        with(3, {2, 1, 1, "1f1b", 1, true, true, none, Sharding::none, adamw, b}),
        with(3, {1, 2, 1, "zb-v", 2, false, true, none, Sharding::none, adamw, l, 2}),
        with(2,
             {2, 2, 1, "interleaved", 2, true, true, selective, Sharding::optimizer, adamw, l, 1}),
        with(2, {2, 1, 2, "1f1b", 1, false, true, none, Sharding::optimizer, lamb, l, 1}),
        with(3, {2, 2, 1, "zb-h1", 1, true, false, full, Sharding::optimizer, adamw, g}),
        with(4, {1, 1, 3, "1f1b", 1, false, true, none, Sharding::optimizer, adamw, g})})
    if (layout.tensor * layout.pipeline * layout.data * layout.context == runtime().ranks())
      expect_the_same_answer(layout);
}

/// The last micro-batch has one sample that counts.
TEST_F(Layouts, EvaluationsMatchOneRankWithContextParallelism) {
  const std::vector<std::int32_t> bytes(261, 1);
  for (const Family family : {Family::gpt, Family::bert}) {
    const auto evaluated = [&](int context, grid::Communicator& world) {
      const deck::Config config =
          small_config(12, 2, world.size(),
                       {text("model.family=", name_of(family)), "model.sequence=31",
                        text("model.vocabulary=", family == Family::bert ? 261 : 257),
                        text("parallel.context=", context)});
      Rig rig(config, tokens_, world);
      return rig.engine->evaluate(data::Windows(tokens_, config.model.text_tokens()), 5, bytes);
    };
    const Evaluation found = evaluated(runtime().ranks(), runtime().world());
    if (runtime().rank() > 0) continue;
    const auto self = grid::Communicator::self();
    const Evaluation expected = evaluated(1, *self);
    EXPECT_EQ(found.bytes, expected.bytes);
    ASSERT_EQ(found.losses.size(), expected.losses.size());
    for (std::size_t i = 0; i < expected.losses.size(); ++i) {
      EXPECT_EQ(found.losses[i].count, expected.losses[i].count);
      EXPECT_NEAR(found.losses[i].nats, expected.losses[i].nats, 1e-10 * expected.losses[i].nats);
    }
  }
}

/// The soak test has 65,536 tokens.
TEST_F(Layouts, MatchOneRankForALongSampleOnFourRanks) {
  if (runtime().ranks() != 4) return;
  const std::int64_t sequence = models_per_layout() > 0 ? 65'536 : 2'051;
  const TemporaryFolder folder;
  const data::TokenFile tokens(write_tokens(folder, 4 * sequence + 1));
  const auto trace = [&](int context, grid::Communicator& world) {
    const deck::Config config = small_config(
        1, 1, world.size(),
        {text("model.sequence=", sequence), text("parallel.context=", context), "model.layers=1",
         "model.hidden=16", "model.heads=2", "model.feed_forward=32", "model.dropout=0"});
    Rig rig(config, tokens, world);
    return rig.run(1, 2);
  };
  const auto found = trace(4, runtime().world());
  if (runtime().rank() > 0) return;
  const auto self = grid::Communicator::self();
  const auto expected = trace(1, *self);
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(found.losses[i], expected.losses[i], 1e-10 * expected.losses[i]);
    EXPECT_NEAR(found.norms[i], expected.norms[i], 1e-10 * expected.norms[i]);
  }
}

}  // namespace
}  // namespace trireme::train
