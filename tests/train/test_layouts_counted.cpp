// Files in which only some tokens count: layouts against one rank, equal bits, and batches in which
// nothing counts.
#include "train/layouts.hpp"

namespace trireme::train {
namespace {

/// Runs of tokens that count and that do not, of up to 40 tokens; none of [first, last) counts.
std::string write_counted_tokens(const TemporaryFolder& folder, std::int64_t tokens,
                                 std::int64_t first, std::int64_t last) {
  return write_random_tokens(
      folder.file("counted.h5"), [&](data::TokenFileWriter& writer, const auto& random) {
        for (bool counted = true; writer.tokens() < tokens; counted = !counted) {
          std::vector<std::int32_t> run(static_cast<std::size_t>(1 + random() % 40));
          for (std::int32_t& id : run)
            id = static_cast<std::int32_t>('a' + random() % 5 * (random() % 5));
          const std::int64_t end = writer.tokens() + std::ssize(run);
          writer.append(run, counted && (end <= first || writer.tokens() >= last));
        }
        writer.end_document(writer.tokens());
      });
}

class CountedLayouts : public Layouts {
 protected:
  Outcome run_counted(const Layout& layout, grid::Communicator& world) {
    return run_on(counted_, layout, world, 4);
  }

  TemporaryFolder counted_folder_;
  data::TokenFile counted_{write_counted_tokens(counted_folder_, 20000, 3000, 9000)};
};

TEST_F(CountedLayouts, MatchOneRank) {
  using enum OptimizerKind;
  using enum Recompute;
  const Family g = Family::gpt, l = Family::llama;
  const auto with = [](int context, Layout layout) {
    layout.context = context;
    return layout;
  };
  const auto shared = [](Layout layout) {
    layout.property = "parallel.vocabulary=pipeline";
    return layout;
  };
  expect_the_answer_of_one_rank(
      {Layout{2, 1, 1, "1f1b", 1, true, true, none, Sharding::none, adamw, g},
       Layout{1, 2, 1, "zb-h1", 1, false, false, selective, Sharding::none, adamw, l, 2},
       Layout{1, 1, 2, "1f1b", 1, false, true, full, Sharding::optimizer, adamw, g}, with(2, {}),
       shared({1, 2, 1, "1f1b", 1, false, true, none, Sharding::none, adamw, g}),
       shared({1, 2, 1, "zb-h1", 1, false, false, full, Sharding::none, adamw, l, 2}),
       Layout{1, 1, 3, "1f1b", 1, false, true, none, Sharding::optimizer, adamw, l, 3},
       Layout{2, 2, 1, "interleaved", 2, true, false, none, Sharding::none, adamw, g},
       Layout{2, 1, 2, "1f1b", 1, false, true, none, Sharding::none, adamw, g},
       with(2, {1, 2, 1, "1f1b", 1, false, true, none, Sharding::none, adamw, l, 3}),
       shared({2, 2, 1, "gpipe", 1, true, true, none, Sharding::none, adamw, g})},
      [&](const Layout& layout, grid::Communicator& world) { return run_counted(layout, world); });
}

TEST_F(CountedLayouts, SchedulesGiveTheSameBits) {
  expect_the_same_bits_of_schedules(
      [&](const Layout& layout, grid::Communicator& world) { return run_counted(layout, world); });
}

/// Σ and number of the counted targets of windows, by the sums of each token alone.
TEST_F(CountedLayouts, EvaluationsCountOnlyUnmaskedTokens) {
  const std::vector<std::int32_t> bytes(257, 1);
  const deck::Config config = small_config(12, 2, runtime().ranks());
  Rig rig(config, counted_);
  const data::Windows windows(counted_, config.model.sequence);
  const Evaluation found = rig.engine->evaluate(windows, 60, bytes);
  std::vector<std::int32_t> mask(60 * static_cast<std::size_t>(config.model.sequence));
  counted_.read(1, mask);
  counted_.mask(1, mask);
  const auto counted = std::ssize(mask) - std::ranges::count(mask, data::uncounted);
  EXPECT_EQ(found.tokens().count, counted);
  EXPECT_EQ(found.bytes, counted);
  EXPECT_GT(counted, 100);
  EXPECT_LT(counted, std::ssize(mask) - 100);
  // All tokens of the same file, and those that do not count.
  std::vector<data::Request> single;
  double expected = 0;
  for (std::int64_t w = 0; w < 60; ++w) {
    std::vector<std::int32_t> inputs(static_cast<std::size_t>(config.model.sequence));
    auto targets = inputs;
    windows.read(w, inputs, targets);
    for (std::size_t t = 0; t < targets.size(); ++t) {
      if (targets[t] == data::uncounted) continue;
      std::vector<std::int32_t> tokens(inputs.begin(),
                                       inputs.begin() + static_cast<std::ptrdiff_t>(t) + 1);
      tokens.push_back(targets[t]);
      single.push_back({tokens, std::ssize(tokens) - 1});
    }
  }
  for (const Score& score :
       rig.engine->score(data::Requests(std::move(single), config.model.sequence)))
    expected -= score.log_likelihood;
  EXPECT_NEAR(found.tokens().nats, expected, 1e-10 * expected);
}

TEST_F(CountedLayouts, BatchWithoutCountedTokensHasNoLossAndNoGradient) {
  const TemporaryFolder folder;
  const data::TokenFile file(write_counted_tokens(folder, 20000, 0, 19990));
  const deck::Config config = small_config(12, 1, runtime().ranks(), {"optimizer.weight_decay=0"});
  Rig rig(config, file);
  ASSERT_EQ(rig.samples.counted(0, 12), 0);
  const auto before = weights_of(whole_arrays(*rig.engine, runtime().world()));
  const Trace found = rig.run(1, 1);
  EXPECT_EQ(found.losses, std::vector<double>{0});
  EXPECT_EQ(found.norms, std::vector<double>{0});
  EXPECT_EQ(weights_of(whole_arrays(*rig.engine, runtime().world())), before);
}

}  // namespace
}  // namespace trireme::train
