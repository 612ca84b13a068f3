// Pairs of a source and a target: layouts against one rank, equal bits, and losses that do not
// depend on how many pairs a sample holds.
#include "train/layouts.hpp"

#include <algorithm>
#include <array>

namespace trireme::train {
namespace {

constexpr std::int32_t pair_end = 256;

/// Sources of 1 to 24 tokens, and targets of 1 to 14.
std::string write_pairs(const TemporaryFolder& folder) {
  return write_random_tokens(
      folder.file("pairs.h5"), [&](data::TokenFileWriter& writer, const auto& random) {
        for (int i = 0; i < 400; ++i) {
          for (const auto& [most, counted] : {std::pair{24, false}, {14, true}}) {
            std::vector<std::int32_t> ids(static_cast<std::size_t>(random() % most));
            for (std::int32_t& id : ids)
              id = static_cast<std::int32_t>('a' + random() % 5 * (random() % 5));
            ids.push_back(pair_end);
            writer.append(ids, counted);
          }
          writer.end_document(10);
        }
      });
}

constexpr const char* one_pair =
    "encoder.layers=3 encoder.sequence=30 model.objective=sequence_to_sequence data.start_token=0";
constexpr const char* several_pairs =
    "encoder.layers=3 encoder.sequence=47 model.objective=sequence_to_sequence data.start_token=0 "
    "data.packing=documents";
constexpr const char* several_gated_pairs =
    "encoder.layers=3 encoder.sequence=47 model.objective=sequence_to_sequence data.start_token=0 "
    "data.packing=documents model.activation=geglu model.scaled_logits=false model.head_size=10";

class PairLayouts : public Layouts {
 protected:
  Outcome run_pairs(Layout layout, grid::Communicator& world) {
    layout.family = Family::t5;
    layout.key_value_heads = 6;
    if (layout.property.empty()) layout.property = several_pairs;
    return run_on(pairs_, layout, world, 4);
  }

  /// A model on each rank.
  deck::Config replicas(const char* property) {
    Layout layout;
    layout.family = Family::t5;
    layout.property = property;
    return small_config(12, 2, runtime().ranks(), layout.overrides());
  }

  TemporaryFolder pairs_folder_;
  data::TokenFile pairs_{write_pairs(pairs_folder_)};
};

TEST_F(PairLayouts, MatchOneRank) {
  using enum OptimizerKind;
  using enum Recompute;
  const auto of = [](const char* property, Layout layout) {
    layout.property = property;
    return layout;
  };
  const auto adapted = [](Layout layout) {
    layout.property = several_pairs;
    layout.trained = {"adapter.kind=lora", "adapter.dropout=0.2",
                      "adapter.targets=attention.query,cross_attention.key_value,feed_forward.up"};
    return layout;
  };
  expect_the_answer_of_one_rank(
      {of(several_pairs, {2, 1, 1, "1f1b", 1, true, true}),
       of(one_pair, {2, 1, 1, "1f1b", 1, false, true, selective}),
       of(several_gated_pairs, {1, 2, 1, "zb-h1", 1, false, false, selective}),
       of(several_pairs, {1, 1, 2, "1f1b", 1, false, true, full, Sharding::weights}),
       of(several_gated_pairs, {3, 1, 1, "1f1b", 1, true, false}),
       of(one_pair, {1, 3, 1, "zb-v", 2, false, true}),
       of(several_pairs, {1, 1, 3, "1f1b", 1, false, true, none, Sharding::optimizer}),
       of(several_pairs, {2, 2, 1, "interleaved", 2, true, false, full}),
       of(several_gated_pairs, {1, 2, 2, "1f1b", 1, false, false, none, Sharding::gradients}),
       adapted({2, 1, 1, "1f1b", 1, true, true}), adapted({1, 3, 1, "zb-h1", 1, false, true}),
       adapted({2, 1, 2, "1f1b", 1, true, false, full, Sharding::weights})},
      [&](const Layout& layout, grid::Communicator& world) { return run_pairs(layout, world); });
}

TEST_F(PairLayouts, SchedulesGiveTheSameBits) {
  expect_the_same_bits_of_schedules(
      [&](const Layout& layout, grid::Communicator& world) { return run_pairs(layout, world); });
}

/// Σ of the cross entropies of packed samples is that of the pairs, each in a sample alone.
TEST_F(PairLayouts, EvaluationsSumOverSinglePairs) {
  const std::vector<std::int32_t> bytes(257, 1);
  std::vector<LossSum> means;
  std::vector<std::int64_t> samples;
  for (const char* property : {one_pair, several_pairs}) {
    const deck::Config config = replicas(property);
    Rig rig(config, pairs_);
    const data::Windows windows(pairs_, data::SampleForm(config.model));
    const Evaluation found = rig.engine->evaluate(windows, windows.count(), bytes);
    EXPECT_EQ(found.bytes, found.tokens().count);
    means.push_back(found.tokens());
    samples.push_back(windows.count());
  }
  EXPECT_EQ(samples.front(), 400);
  EXPECT_LT(samples.back(), 200) << "most samples hold several pairs";
  EXPECT_EQ(means.front().count, means.back().count);
  EXPECT_NEAR(means.front().nats, means.back().nats, 1e-12 * means.front().nats);
}

/// −Σ log-likelihoods of the targets of all pairs is the sum of their cross entropies.
TEST_F(PairLayouts, ScoresOfTargetsSumToTheLoss) {
  const deck::Config config = replicas(one_pair);
  Rig rig(config, pairs_);
  const data::Windows windows(pairs_, data::SampleForm(config.model));
  const LossSum loss =
      rig.engine->evaluate(windows, windows.count(), std::vector<std::int32_t>(257, 1)).tokens();
  std::vector<data::Request> requests;
  for (std::int64_t document = 0; document < pairs_.documents(); ++document) {
    std::array<std::int64_t, 2> ends{};
    pairs_.read_document_offsets(document, ends);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(ends[1] - ends[0]));
    pairs_.read(ends[0], ids);
    const auto target = std::ranges::find(ids, pair_end) + 1;
    const auto length = std::min(ids.end() - target, config.model.sequence);
    data::Request request{{0}, 1, {ids.begin(), target}};
    request.tokens.insert(request.tokens.end(), target, target + length);
    requests.push_back(std::move(request));
  }
  ASSERT_EQ(std::ssize(requests), windows.count());
  double nats = 0;
  for (const Score& score :
       rig.engine->score(data::Requests(std::move(requests), config.model.sequence)))
    nats -= score.log_likelihood;
  EXPECT_NEAR(nats, loss.nats, 1e-12 * loss.nats);
}

}  // namespace
}  // namespace trireme::train
