// [parallel] expert: replicas that divide the experts and send tokens to one another.
#include <trireme/kernels/experts.hpp>
#include <trireme/tensor/arena.hpp>

#include "train/checkpoints.hpp"
#include "train/layouts.hpp"

#include <Kokkos_Core.hpp>

#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>

namespace trireme::train {
namespace {

/// Equal tokens: every token of the file chooses the same experts.
std::string write_one_id(const TemporaryFolder& folder) {
  data::TokenFileWriter writer(folder.file("one_id.h5"), "bytes", 257);
  const std::vector<std::int32_t> document(100, 'a');
  for (int i = 0; i < 60; ++i) {
    writer.append(document);
    writer.end_document(writer.tokens());
  }
  writer.commit("test");
  return folder.file("one_id.h5");
}

Layout divided(int expert, Layout layout) {
  layout.more.push_back(text("parallel.expert=", expert));
  return layout;
}

class ExpertAxisLayouts : public Layouts {
 protected:
  /// Layouts with 2 to 12 ranks: all kinds of expert models, divisions and schedules take part.
  static std::vector<Layout> layouts() {
    using enum OptimizerKind;
    using enum Recompute;
    const Family x = Family::mixtral, q = Family::qwen2_moe, o = Family::gpt_oss,
                 d = Family::deepseek_v3;
    const auto with = [](const char* property, Layout layout) {
      layout.property = property;
      return layout;
    };
    const auto context = [](int ranks, Layout layout) {
      layout.context = ranks;
      return layout;
    };
    const auto also = [](const char* key, Layout layout) {
      layout.more.emplace_back(key);
      return layout;
    };
    using S = Sharding;
    return {
        // two ranks
        divided(2, with(five_experts, {1, 1, 2, "1f1b", 1, false, true, none, S::none, adamw, x})),
        divided(2,
                with(five_experts, {1, 1, 2, "1f1b", 1, false, true, full, S::weights, lamb, x})),
        divided(2, with(five_and_a_shared_expert,
                        {1, 1, 2, "1f1b", 1, false, false, selective, S::optimizer, adamw, q, 2})),
        divided(2, with(experts_and_windows,
                        {1, 1, 2, "gpipe", 1, false, true, none, S::gradients, adamw, o, 2})),
        divided(2, with(latent_and_groups,
                        {1, 1, 2, "1f1b", 1, false, true, none, S::weights, adamw, d, 6})),
        divided(2, context(2, with(five_experts,
                                   {1, 1, 1, "1f1b", 1, false, true, full, S::none, adamw, x}))),
        divided(2, with(five_limited_experts,
                        {1, 1, 2, "1f1b", 1, false, true, none, S::optimizer, adamw, x})),
        divided(2, with(five_experts_in_rounds,
                        {1, 1, 2, "zb-h1", 1, false, true, none, S::weights, adamw, x})),
        divided(2, with(five_experts, {1, 1, 2, "1f1b", 1, false, true, none, S::none, muon, x})),
        divided(2,
                with(five_experts, {1, 1, 2, "1f1b", 1, false, true, full, S::weights, muon, x})),
        divided(2,
                with(five_experts, {1, 1, 2, "1f1b", 1, false, true, none, S::none, adafactor, x})),
        divided(2, with(five_experts_in_rounds,
                        {1, 1, 2, "1f1b", 1, false, true, none, S::weights, adafactor, x})),
        // three
        divided(3, with(five_experts_in_rounds,
                        {1, 1, 3, "1f1b", 1, false, true, full, S::none, lamb, x})),
        divided(3, with(five_limited_experts,
                        {1, 1, 3, "1f1b", 1, false, true, selective, S::none, adamw, x})),
        divided(3, with(five_experts, {1, 1, 3, "1f1b", 1, false, true, none, S::none, lamb, x})),
        divided(3, with(experts_and_windows,
                        {1, 1, 3, "1f1b", 1, false, false, full, S::weights, adamw, o, 2})),
        divided(3, with(five_and_a_shared_expert,
                        {1, 1, 3, "1f1b", 1, false, false, none, S::optimizer, muon, q, 2})),
        divided(3, with(experts_and_windows,
                        {1, 1, 3, "1f1b", 1, false, false, none, S::none, adafactor, o, 2})),
        // four
        divided(2, with(five_experts, {2, 1, 2, "1f1b", 1, true, true, none, S::none, adamw, x})),
        divided(2,
                with(five_experts, {2, 1, 2, "zb-h1", 1, false, true, full, S::weights, lamb, x})),
        divided(2, with(latent_and_groups,
                        {1, 2, 2, "zb-h1", 1, false, true, none, S::optimizer, adamw, d, 6})),
        divided(4, with(five_experts,
                        {1, 1, 4, "1f1b", 1, false, true, selective, S::gradients, adamw, x})),
        divided(2, with(five_and_a_shared_expert,
                        {1, 1, 4, "1f1b", 1, false, true, none, S::weights, adamw, q, 2})),
        divided(2,
                also("parallel.shard_group=2", with(five_experts, {1, 1, 4, "1f1b", 1, false, true,
                                                                   none, S::optimizer, adamw, x}))),
        divided(4, context(2, with(experts_and_windows,
                                   {1, 1, 2, "1f1b", 1, false, true, none, S::none, adamw, o, 2}))),
        divided(2, also("parallel.order=tensor, data, context",
                        context(2, with(five_experts, {1, 1, 2, "1f1b", 1, false, true, none,
                                                       S::optimizer, adamw, x})))),
        divided(2, with(five_experts_in_rounds,
                        {2, 1, 2, "1f1b", 1, true, true, none, S::optimizer, adamw, x})),
        divided(4, context(2, with(five_limited_experts,
                                   {1, 1, 2, "1f1b", 1, false, true, full, S::weights, adamw, x}))),
        divided(2, with(five_experts,
                        {1, 2, 2, "interleaved", 2, false, true, selective, S::none, adamw, x})),
        divided(2, with(five_split_experts,
                        {2, 1, 2, "1f1b", 1, true, true, full, S::weights, adamw, x})),
        divided(2, also("experts.split=true",
                        also("experts.rows=0.4",
                             with(experts_and_windows,
                                  {2, 1, 2, "1f1b", 1, false, true, none, S::none, adamw, o, 2})))),
        divided(2, with(latent_and_groups,
                        {2, 1, 2, "1f1b", 1, true, true, none, S::none, muon, d, 6})),
        divided(2,
                also("parallel.shard_group=2", with(five_experts, {1, 1, 4, "1f1b", 1, false, true,
                                                                   none, S::optimizer, muon, x}))),
        divided(2, with(latent_and_groups,
                        {1, 2, 2, "zb-h1", 1, false, true, none, S::optimizer, muon, d, 6})),
        divided(2, with(five_split_experts,
                        {2, 1, 2, "1f1b", 1, true, true, none, S::none, adafactor, x})),
        divided(2, also("parallel.shard_group=2",
                        with(five_experts,
                             {1, 1, 4, "1f1b", 1, false, true, none, S::optimizer, adafactor, x}))),
        divided(2, with(many_limited_experts,
                        {2, 1, 2, "1f1b", 1, false, true, none, S::none, adamw, x})),
        // six, eight and twelve
        divided(4,
                also("experts.split=true",
                     context(2, with(experts_and_windows, {2, 1, 2, "zb-h1", 1, true, true,
                                                           selective, S::optimizer, lamb, o, 2})))),
        divided(3, with(latent_and_groups,
                        {2, 1, 3, "1f1b", 1, true, true, full, S::weights, adamw, d, 6})),
        divided(3, with(five_experts, {1, 2, 3, "gpipe", 1, false, true, none, S::none, adamw, x})),
        divided(4,
                with(five_experts, {1, 2, 4, "zb-v", 2, false, true, none, S::weights, lamb, x})),
        divided(2, context(3, with(five_limited_experts,
                                   {2, 1, 2, "1f1b", 1, true, true, none, S::none, adamw, x}))),
        divided(2, context(2, with(experts_and_windows, {2, 1, 2, "1f1b", 1, true, true, selective,
                                                         S::optimizer, adamw, o, 2}))),
        divided(2, with(five_experts,
                        {2, 3, 2, "interleaved", 2, true, true, full, S::optimizer, adamw, x})),
        divided(3, with(latent_and_groups,
                        {2, 1, 3, "1f1b", 1, true, true, none, S::weights, muon, d, 6})),
        divided(3, with(latent_and_groups,
                        {2, 1, 3, "1f1b", 1, true, true, full, S::none, adafactor, d, 6})),
        divided(2, context(2, with(latent_and_groups, {1, 3, 2, "1f1b", 1, false, true, none,
                                                       S::gradients, adamw, d, 6}))),
    };
  }

  TemporaryFolder one_id_folder_;
  data::TokenFile one_id_{write_one_id(one_id_folder_)};
};

/// The smallest difference between a kept and a rejected key of any choice while it exists: a tie
/// may be decided otherwise on another layout, whose sums round differently.
class SmallestMargin {
 public:
  SmallestMargin() {
    if (!exec_on_host) return;  // choices are in a device's memory
    kernels::choice_observer() = [this](View2<const double> routes, View2<const double> scores,
                                        View1<const double> bias,
                                        const kernels::ExpertChoice& choice) {
      for (std::size_t row = 0; row < scores.extent(0); ++row)
        add(routes, scores, bias, choice, row);
    };
  }
  SmallestMargin(const SmallestMargin&) = delete;
  SmallestMargin& operator=(const SmallestMargin&) = delete;
  ~SmallestMargin() { kernels::choice_observer() = nullptr; }

  double found() const { return smallest_; }
  std::int64_t rows() const { return rows_; }

 private:
  void add(View2<const double> routes, View2<const double> scores, View1<const double> bias,
           const kernels::ExpertChoice& choice, std::size_t row) {
    const auto experts = static_cast<std::int64_t>(scores.extent(1));
    std::vector<double> keys;
    for (std::int64_t e = 0; e < experts; ++e)
      keys.push_back(scores(row, static_cast<std::size_t>(e)) +
                     (bias.extent(0) > 0 ? bias(static_cast<std::size_t>(e)) : 0));
    std::vector<bool> open(keys.size(), true);
    if (choice.groups > 1) {
      const std::int64_t each = experts / choice.groups;
      std::vector<std::pair<double, std::int64_t>> groups;
      for (std::int64_t g = 0; g < choice.groups; ++g) {
        std::vector<double> own(keys.begin() + g * each, keys.begin() + (g + 1) * each);
        std::ranges::sort(own, std::greater<>());
        groups.emplace_back(own[0] + own[1], g);
      }
      std::ranges::sort(groups, std::greater<>());
      const auto kept = static_cast<std::size_t>(choice.active_groups);
      for (std::size_t i = kept; i < groups.size(); ++i) {
        smallest_ = std::min(smallest_, groups[kept - 1].first - groups[i].first);
        for (std::int64_t e = 0; e < each; ++e)
          open[static_cast<std::size_t>(groups[i].second * each + e)] = false;
      }
    }
    double kept = std::numeric_limits<double>::infinity();
    for (std::int64_t j = 0; j < choice.active; ++j) {
      const auto e =
          static_cast<std::size_t>(routes(row, static_cast<std::size_t>(choice.active + j)));
      kept = std::min(kept, keys[e]);
      open[e] = false;
    }
    for (std::size_t e = 0; e < keys.size(); ++e)
      if (open[e]) smallest_ = std::min(smallest_, kept - keys[e]);
    ++rows_;
  }

  double smallest_ = std::numeric_limits<double>::infinity();
  std::int64_t rows_ = 0;
};

TEST_F(ExpertAxisLayouts, MatchOneRank) {
  const SmallestMargin margin;
  expect_the_answer_of_one_rank(layouts(), [&](const Layout& layout, grid::Communicator& world) {
    return run(layout, world);
  });
  if (!exec_on_host || runtime().ranks() == 1) return;
  EXPECT_GT(margin.rows(), 100);
  EXPECT_GT(margin.found(), 1e-9) << "of " << margin.rows() << " choices";
}

/// The ranks of two experts get every token, other ranks get none.
TEST_F(ExpertAxisLayouts, MatchOneRankIfAllTokensChooseTheSameExperts) {
  std::vector<Layout> without_dropout = layouts();
  for (Layout& layout : without_dropout) layout.trained.emplace_back("model.dropout=0");
  expect_the_answer_of_one_rank(without_dropout,
                                [&](const Layout& layout, grid::Communicator& world) {
                                  return run_on(one_id_, layout, world, 2);
                                });
}

/// Neither the schedule, nor the pipeline, recomputation or division of state changes a bit.
TEST_F(ExpertAxisLayouts, KeepTheBits) {
  if (runtime().ranks() != 4) GTEST_SKIP() << "needs 4 ranks";
  Layout layout = divided(2, {1, 1, 2});
  layout.family = Family::mixtral;
  layout.property = five_experts;
  const Outcome expected = run_on_some(layout);
  const auto expect_the_bits = [&](const Layout& other) {
    SCOPED_TRACE(other.name());
    const Outcome found = run_on_some(other);
    if (runtime().rank() > 0) return;
    EXPECT_EQ(found.trace, expected.trace);
    EXPECT_EQ(found.weights, expected.weights);
  };
  for (const Sharding shard : {Sharding::optimizer, Sharding::gradients, Sharding::weights}) {
    Layout other = layout;
    other.shard = shard;
    other.recompute = shard == Sharding::optimizer ? Recompute::full : Recompute::selective;
    expect_the_bits(other);
  }
  layout.pipeline = 2;
  for (const auto& [schedule, chunks] :
       {std::pair{"gpipe", 1}, {"1f1b", 1}, {"zb-h1", 1}, {"interleaved", 2}, {"zb-v", 2}}) {
    Layout other = layout;
    other.schedule = schedule;
    other.chunks = chunks;
    expect_the_bits(other);
  }
}

/// Checkpoints hold every expert, and continue with other divisions and on one rank.
TEST_F(ExpertAxisLayouts, CheckpointsContinueOnOtherLayouts) {
  const int ranks = runtime().ranks();
  if (ranks < 2 || ranks > 4) GTEST_SKIP() << "needs 2 to 4 ranks";
  Layout layout = divided(ranks, {1, 1, ranks});
  layout.family = Family::deepseek_v3;
  layout.key_value_heads = 6;
  layout.property = latent_and_groups;
  const auto config = [&](const Layout& of, int on) {
    return small_config(12, 1, on, of.overrides());
  };
  TemporaryFolder folder;
  const std::string where = shared_folder(folder);
  for (const auto& [shard, kind] : {std::pair{Sharding::none, OptimizerKind::adamw},
                                    {Sharding::weights, OptimizerKind::adamw},
                                    {Sharding::optimizer, OptimizerKind::muon},
                                    {Sharding::none, OptimizerKind::adafactor}}) {
    SCOPED_TRACE(name_of(kind));
    layout.shard = shard;
    layout.optimizer = kind;
    Rig first(config(layout, ranks), tokens_);
    first.run(1, 2);
    const std::string directory = text(where, name_of(kind), name_of(shard));
    save(*first.engine, directory, 2);
    const auto arrays = whole_arrays(*first.engine, runtime().world());
    const Trace expected = first.run(3, 4);
    const checkpoint::Reader reader(directory + "/step_00000002");
    std::vector<Layout> others{layout.on_one_rank(), layout.on_one_rank(), layout};
    others[0].tensor = ranks;
    others[1].data = ranks;
    others[1].shard = Sharding::optimizer;
    if (ranks == 4) others.push_back(divided(2, others[0]));
    if (ranks == 4) others.back().tensor = others.back().data = 2;
    for (const Layout& other : others) {
      SCOPED_TRACE(other.name());
      Rig next(config(other, ranks), tokens_);
      next.engine->load(reader);
      EXPECT_EQ(whole_arrays(*next.engine, runtime().world()), arrays);
      const Trace found = next.run(3, 4);
      for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_NEAR(found.losses[i], expected.losses[i], 1e-10 * expected.losses[i]);
        EXPECT_NEAR(found.norms[i], expected.norms[i], 1e-10 * expected.norms[i]);
      }
      if (&other == &others[2]) {
        EXPECT_EQ(found, expected);
      }
    }
  }
}

/// Expert 3, then tensor 2, expert 2 · pipeline 2 and one rank: each continues the checkpoint of
/// the former as if one rank had made all steps. Damage of any shard is found before use.
TEST_F(ExpertAxisLayouts, RestartsThroughAChainOfLayouts) {
  if (runtime().ranks() != 4) GTEST_SKIP() << "needs 4 ranks";
  std::vector<Layout> chain{divided(3, {1, 1, 3}), {2, 1, 1}, divided(2, {1, 2, 2}), {}};
  for (Layout& layout : chain) {
    layout.family = Family::deepseek_v3;
    layout.key_value_heads = 6;
    layout.property = latent_and_groups;
  }
  const auto config = [](const Layout& layout) {
    return small_config(12, layout.data == 3 ? 2 : 1, layout.ranks(), layout.overrides());
  };
  TemporaryFolder folder;
  const std::string where = shared_folder(folder);
  const auto step_folder = [&](std::int64_t step) { return text(where, "/step_0000000", step); };
  Trace found;
  for (std::int64_t step = 1; step <= 4; ++step) {
    const Layout& layout = chain[static_cast<std::size_t>(step - 1)];
    SCOPED_TRACE(layout.name());
    const int used = layout.ranks();
    const auto part =
        runtime().world().split(runtime().rank() < used ? 0 : 1, runtime().rank(), "some ranks");
    if (runtime().rank() < used) {
      Rig rig(config(layout), tokens_, *part);
      if (step > 1) rig.engine->load(checkpoint::Reader(step_folder(step - 1)));
      const Trace one = rig.run(step, step);
      save(*rig.engine, where, step, *part);
      found.losses.push_back(one.losses.front());
      found.norms.push_back(one.norms.front());
    }
    runtime().world().barrier("the next layout");
  }
  if (runtime().rank() > 0) return;
  const auto self = grid::Communicator::self();
  Rig alone(config(chain.back()), tokens_, *self);
  const Trace expected = alone.run(1, 4);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(found.losses[i], expected.losses[i], 1e-10 * expected.losses[i]) << i;
    EXPECT_NEAR(found.norms[i], expected.norms[i], 1e-10 * expected.norms[i]) << i;
  }
  int shards = 0;
  for (const auto& file : std::filesystem::directory_iterator(step_folder(1))) {
    const std::string name = file.path().filename().string();
    if (!name.starts_with("shard_")) continue;
    SCOPED_TRACE(name);
    ++shards;
    const auto flip = [&] {  // a byte in the middle, which belongs to an array
      std::fstream bytes(file.path(), std::ios::in | std::ios::out | std::ios::binary);
      const auto at = static_cast<std::streamoff>(file.file_size() / 2);
      char byte = 0;
      bytes.seekg(at).read(&byte, 1);
      byte = static_cast<char>(byte ^ 1);
      bytes.seekp(at).write(&byte, 1);
    };
    flip();
    std::string message;
    try {
      alone.engine->load(checkpoint::Reader(step_folder(1)));
    } catch (const Error& error) {
      message = error.what();
    }
    EXPECT_NE(message.find(name), std::string::npos) << message;
    EXPECT_NE(message.find("damaged"), std::string::npos) << message;
    flip();
  }
  EXPECT_EQ(shards, 3);
  EXPECT_NO_THROW(alone.engine->load(checkpoint::Reader(step_folder(1))));
}

Layout mixtral_on_replicas(int ranks) {
  Layout layout = divided(ranks, {1, 1, ranks});
  layout.family = Family::mixtral;
  layout.property = five_experts;
  return layout;
}

/// The ranks have different numbers of samples, also none.
TEST_F(ExpertAxisLayouts, EvaluateAnyNumberOfSamples) {
  const int ranks = runtime().ranks();
  if (ranks > 4) GTEST_SKIP() << "needs 1 to 4 ranks";
  const Layout layout = mixtral_on_replicas(ranks);
  Rig rig(small_config(12, 1, ranks, layout.overrides()), tokens_);
  const data::Windows windows(tokens_, layout_sequence);
  const std::vector<std::int32_t> bytes(257, 1);
  const auto self = grid::Communicator::self();
  for (const std::int64_t samples : {1, 2, 5, 7}) {
    const Evaluation found = rig.engine->evaluate(windows, samples, bytes);
    EXPECT_EQ(found.tokens().count, samples * layout_sequence);
    double nats = found.tokens().nats;
    if (runtime().rank() == 0) {
      Rig one(small_config(12, 1, 1, layout.on_one_rank().overrides()), tokens_, *self);
      const Evaluation expected = one.engine->evaluate(windows, samples, bytes);
      EXPECT_NEAR(nats, expected.tokens().nats, 1e-10 * expected.tokens().nats);
    }
    runtime().world().barrier("one rank has evaluated");
  }
}

/// Also if more tokens choose a rank's experts than in the first step.
TEST_F(ExpertAxisLayouts, LaterStepsAllocateNothing) {
  const int ranks = runtime().ranks();
  if (ranks > 4) GTEST_SKIP() << "needs 1 to 4 ranks";
  const Layout layout = mixtral_on_replicas(ranks);
  Rig rig(small_config(12, 1, ranks, layout.overrides()), tokens_);
  rig.run(1, 1);
  const data::Samples uneven(one_id_, layout_sequence, 3);
  static std::int64_t kokkos_allocations = 0;
  kokkos_allocations = 0;
  Kokkos::Tools::Experimental::set_allocate_data_callback(
      [](const Kokkos_Profiling_SpaceHandle, const char*, const void*, const uint64_t) {
        ++kokkos_allocations;
      });
  const std::int64_t arenas = arena_allocation_count();
  rig.engine->train_step(2, uneven);
  rig.engine->result();
  EXPECT_EQ(arena_allocation_count(), arenas);
  EXPECT_EQ(kokkos_allocations, 0);
  Kokkos::Tools::Experimental::set_allocate_data_callback(nullptr);
}

}  // namespace
}  // namespace trireme::train
