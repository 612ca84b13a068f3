// A vocabulary that all pipeline ranks share against one rank: training, evaluation and restarts.
#include <trireme/train/saver.hpp>

#include "train/layouts.hpp"

namespace trireme::train {
namespace {

/// 257 ids over 2 to 12 parts of different lengths, with each other axis.
TEST_F(Layouts, MatchOneRankWithASharedVocabulary) {
  using enum OptimizerKind;
  using enum Recompute;
  const Family g = Family::gpt, l = Family::llama;
  std::vector<Layout> layouts{
      {1, 2, 1, "1f1b", 1, false, true, none, Sharding::none, adamw, g},
      {1, 2, 1, "gpipe", 1, false, false, full, Sharding::none, adamw, l, 2},
      {1, 2, 1, "zb-h1", 1, false, true, selective, Sharding::none, adamw, g},
      {1, 3, 1, "1f1b", 1, false, false, none, Sharding::none, lamb, g},
      {1, 2, 1, "1f1b", 1, false, true, none, Sharding::none, adamw, Family::gemma2, 2},
      {1, 3, 1, "zb-h1", 1, false, false, full, Sharding::none, adamw, Family::gemma2, 3},
      {2, 2, 1, "gpipe", 1, true, true, none, Sharding::none, adamw, Family::gemma2, 2},
      {1, 3, 1, "zb-h1", 1, false, true, full, Sharding::none, adamw, l, 3},
      {2, 2, 1, "1f1b", 1, true, true, none, Sharding::none, adamw, g},
      {2, 2, 1, "gpipe", 1, false, true, none, Sharding::none, adamw, l, 2},
      {1, 2, 2, "zb-h1", 1, false, false, none, Sharding::optimizer, adamw, g},
      {1, 4, 1, "1f1b", 1, false, true, full, Sharding::none, adamw, g},
      {2, 3, 1, "1f1b", 1, true, false, none, Sharding::none, adamw, l, 1},
      {2, 2, 2, "zb-h1", 1, true, true, none, Sharding::optimizer, adamw, g},
      {3, 4, 1, "1f1b", 1, true, true, none, Sharding::none, adamw, g},
      {2, 3, 2, "gpipe", 1, false, false, none, Sharding::optimizer, lamb, l, 2}};
  if (models_per_layout() > 0)
    for (const Family family : {g, l})
      for (const Layout& layout : all_layouts(runtime().ranks(), {family})) {
        const bool one_stage =
            layout.schedule == "1f1b" || layout.schedule == "gpipe" || layout.schedule == "zb-h1";
        if (one_stage && layout.pipeline > 1) layouts.push_back(layout);
      }
  for (Layout& layout : layouts) {
    layout.property = shared_vocabulary;
    if (layout.tensor * layout.pipeline * layout.data == runtime().ranks())
      expect_the_same_answer(layout);
  }
}

/// The last micro-batch has one sample that counts.
TEST_F(Layouts, EvaluationsMatchOneRankWithASharedVocabulary) {
  const std::vector<std::int32_t> bytes(257, 1);
  const auto evaluated = [&](int pipeline, grid::Communicator& world) {
    const deck::Config config =
        small_config(12, 2, world.size(),
                     {shared_vocabulary, "model.layers=5", text("parallel.pipeline=", pipeline)});
    Rig rig(config, tokens_, world);
    rig.run(1, 1);
    return rig.engine->evaluate(data::Windows(tokens_, config.model.text_tokens()), 9, bytes);
  };
  const Evaluation found = evaluated(runtime().ranks(), runtime().world());
  if (runtime().rank() > 0) return;
  const auto self = grid::Communicator::self();
  const Evaluation expected = evaluated(1, *self);
  EXPECT_EQ(found.bytes, expected.bytes);
  EXPECT_EQ(found.tokens().count, expected.tokens().count);
  EXPECT_NEAR(found.tokens().nats, expected.tokens().nats, 1e-10 * expected.tokens().nats);
}

/// From shared tables to those of stages and back, with the arrays of one rank.
TEST_F(Layouts, MatchOneRankAcrossRestartsThatShareTheVocabulary) {
  const int ranks = runtime().ranks();
  if (ranks < 2 || ranks > 6) return;  // heads
  const std::string pipeline = text("parallel.pipeline=", ranks);
  const std::string tensor = text("parallel.tensor=", ranks);
  const auto config = [&](std::vector<std::string> layout, grid::Communicator& world) {
    for (const char* size : {"model.layers=5", "model.heads=6"}) layout.emplace_back(size);
    return small_config(12, 1, world.size(), layout);
  };
  const std::vector<std::vector<std::string>> jobs{
      {pipeline, shared_vocabulary},
      {tensor},
      {pipeline, shared_vocabulary, "parallel.schedule=gpipe"},
      {pipeline}};
  Trace found;
  for (std::size_t job = 0; job < jobs.size(); ++job) {
    const auto first = static_cast<std::int64_t>(2 * job);
    Rig rig(config(jobs[job], runtime().world()), tokens_);
    const std::string folder =
        runtime().world().broadcast(folder_.file("checkpoints"), 0, "rank 0's folder");
    if (job > 0) rig.engine->load(checkpoint::Reader(folder + text("/step_0000000", first)));
    const Trace trace = rig.run(first + 1, first + 2);
    found.losses.insert(found.losses.end(), trace.losses.begin(), trace.losses.end());
    found.norms.insert(found.norms.end(), trace.norms.begin(), trace.norms.end());
    deck::CheckpointConfig where;
    where.directory = folder;
    Saver(where, runtime().world(), *rig.engine, 0)
        .save({first + 2, 12 * (first + 2), "# deck"}, false);
  }
  if (runtime().rank() > 0) return;
  const auto self = grid::Communicator::self();
  Rig one(config({}, *self), tokens_, *self);
  const Trace expected = one.run(1, static_cast<std::int64_t>(2 * jobs.size()));
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(found.losses[i], expected.losses[i], 1e-10 * expected.losses[i]);
    EXPECT_NEAR(found.norms[i], expected.norms[i], 1e-10 * expected.norms[i]);
  }
}

}  // namespace
}  // namespace trireme::train
