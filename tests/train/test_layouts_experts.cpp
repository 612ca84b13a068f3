#include "train/layouts.hpp"

namespace trireme::train {
namespace {

using namespace trireme::testing;

/// The terms of the loss in the steps of a run.
using Terms = std::vector<std::vector<double>>;

deck::Config config_of(grid::Communicator& world, const std::vector<std::string>& keys) {
  std::vector<std::string> all{"model.family=mixtral",    "model.layers=3",
                               "model.heads=4",           "model.hidden=32",
                               "model.key_value_heads=2", "experts.number=5",
                               "experts.feed_forward=20", "experts.balance_weight=0.1",
                               "experts.z_weight=0.01",   "model.sequence=7"};
  all.insert(all.end(), keys.begin(), keys.end());
  return small_config(12, 1, world.size(), all);
}

Terms terms_of(Rig& rig) {
  Terms terms;
  for (std::int64_t step = 1; step <= 3; ++step) {
    rig.engine->train_step(step, rig.samples);
    const StepResult found = rig.engine->result();
    terms.push_back({found.loss, found.gradient_norm});
    for (const NamedLoss& other : found.other_losses) terms.back().push_back(other.mean);
    for (const auto* more : {&found.expert_loads, &found.dropped_choices})
      terms.back().insert(terms.back().end(), more->begin(), more->end());
  }
  return terms;
}

Terms terms_of(const data::TokenFile& file, grid::Communicator& world,
               const std::vector<std::string>& keys) {
  Rig rig(config_of(world, keys), file, world);
  return terms_of(rig);
}

/// Micro-batches of 7 tokens and 5 experts: in some of them, ranks have experts without tokens.
class ExpertLosses : public ::testing::Test {
 protected:
  /// `trained`: keys that one rank has, too.
  void expect_the_terms_of_one_rank(std::vector<std::string> keys,
                                    const std::vector<std::string>& trained = {}) {
    keys.insert(keys.end(), trained.begin(), trained.end());
    SCOPED_TRACE(join(keys, " "));
    const Terms found = terms_of(tokens_, runtime().world(), keys);
    if (runtime().rank() > 0) return;
    if (alone_.empty()) {
      const auto self = grid::Communicator::self();
      alone_ = terms_of(tokens_, *self, trained);
    }
    for (std::size_t step = 0; step < alone_.size(); ++step)
      for (std::size_t i = 0; i < alone_[step].size(); ++i)
        EXPECT_NEAR(found[step][i], alone_[step][i], 1e-10 * alone_[step][i]);
  }

  const TemporaryFolder folder_;
  const data::TokenFile tokens_{write_tokens(folder_, 4000)};
  Terms alone_;
};

using Keys = std::vector<std::string>;

/// Layouts for numbers of ranks.
const std::vector<std::pair<int, Keys>>& layouts_of_ranks() {
  static const std::vector<std::pair<int, Keys>> all{
      {1, {"batch.micro=2"}},
      {1, {"batch.micro=12", "parallel.recompute=full"}},
      {2, {"parallel.tensor=2"}},
      {2, {"parallel.tensor=2", "parallel.sequence_parallel=true", "parallel.recompute=full"}},
      {2, {"parallel.context=2", "batch.micro=3"}},
      {2, {"parallel.data=2", "batch.micro=3"}},
      {2, {"parallel.pipeline=2", "parallel.schedule=zb-h1"}},
      {2, {"parallel.pipeline=2", "parallel.vocabulary=pipeline"}},
      {3, {"parallel.pipeline=3"}},
      {3, {"parallel.tensor=3", "parallel.sequence_parallel=true"}},
      {4, {"parallel.tensor=4"}},
      {4, {"parallel.tensor=4", "parallel.sequence_parallel=true", "parallel.schedule=zb-h1"}},
      {4, {"parallel.tensor=2", "parallel.context=2", "parallel.sequence_parallel=true"}},
      {4, {"parallel.tensor=2", "parallel.pipeline=2", "parallel.recompute=selective"}},
      {4, {"parallel.data=2", "parallel.pipeline=2", "parallel.shard=weights"}}};
  return all;
}

TEST_F(ExpertLosses, DoNotDependOnTheLayout) {
  for (const auto& [ranks, keys] : layouts_of_ranks())
    if (ranks == runtime().ranks()) expect_the_terms_of_one_rank(keys);
  if (runtime().rank() == 0) {
    EXPECT_EQ(alone_.front().size(), 7U);  // with the loads of 3 layers
  }
}

/// The load of the whole previous batch, on every layout.
TEST_F(ExpertLosses, WithThePreviousBatchDoNotDependOnTheLayout) {
  const Keys batch{"experts.balance=batch"};
  for (const auto& [ranks, keys] : layouts_of_ranks())
    if (ranks == runtime().ranks()) expect_the_terms_of_one_rank(keys, batch);
  for (const auto& keys : {Keys{"parallel.data=2", "parallel.expert=2"},
                           Keys{"parallel.data=2", "parallel.shard=weights", "parallel.expert=2"}})
    if (runtime().ranks() == 2) expect_the_terms_of_one_rank(keys, batch);
  if (runtime().rank() > 0) return;
  // Each layer's first load is 1, and later loads are not: the loss leaves 0.1 per layer.
  EXPECT_NEAR(alone_[0][2], 0.3, 1e-12);
  EXPECT_GT(std::abs(alone_[1][2] - 0.3), 1e-4);
}

TEST_F(ExpertLosses, DoNotDependOnTheDivisionOfExperts) {
  for (const auto& [ranks, keys] : layouts_of_ranks())
    if (ranks == runtime().ranks()) {
      Keys all = keys;
      all.emplace_back("experts.split=true");
      expect_the_terms_of_one_rank(all);
    }
}

/// Every rank has as many rounds as its own rows need.
TEST_F(ExpertLosses, DoNotDependOnTheRounds) {
  for (const auto& [ranks, keys] : layouts_of_ranks())
    if (ranks == runtime().ranks()) {
      Keys all = keys;
      all.emplace_back("experts.rows=0.7");
      expect_the_terms_of_one_rank(all);
    }
}

/// Also if the tokens of a sample are divided: 2 routes of 7 tokens to an expert are kept.
TEST_F(ExpertLosses, DropTheSameChoicesOnEveryLayout) {
  const Keys limited{"experts.capacity=0.5"};
  for (const auto& [ranks, keys] : layouts_of_ranks())
    if (ranks == runtime().ranks()) expect_the_terms_of_one_rank(keys, limited);
  const std::vector<std::pair<int, Keys>> divided{
      {2, {"parallel.data=2", "parallel.expert=2"}},
      {2, {"parallel.context=2", "parallel.expert=2", "parallel.recompute=full"}},
      {3, {"parallel.context=3", "batch.micro=2"}},
      {4, {"parallel.context=4", "batch.micro=6", "parallel.expert=2"}},
      {4, {"parallel.context=2", "parallel.data=2", "parallel.expert=4"}},
      {4,
       {"parallel.context=2", "parallel.data=2", "parallel.expert=2",
        "parallel.order=tensor, data, context", "experts.rows=10"}},
      {4,
       {"parallel.tensor=2", "parallel.data=2", "parallel.expert=2",
        "parallel.sequence_parallel=true"}}};
  for (const auto& [ranks, keys] : divided)
    if (ranks == runtime().ranks()) expect_the_terms_of_one_rank(keys, limited);
  if (runtime().rank() > 0) return;
  ASSERT_EQ(alone_.front().size(), 10U);
  for (const Terms::value_type& step : alone_)
    for (std::size_t layer = 7; layer < 10; ++layer) {
      EXPECT_GT(step[layer], 0.1);
      EXPECT_LT(step[layer], 0.7);
    }
}

/// Equal numbers of tokens per document: with documents packed, each sample of 11 tokens has 4 rows
/// of padding, and each sample of 7 tokens has none.
std::string write_equal_documents(const TemporaryFolder& folder) {
  return write_random_tokens(
      folder.file("documents.h5"), [](data::TokenFileWriter& writer, const auto& random) {
        for (int i = 0; i < 40; ++i) {
          std::vector<std::int32_t> document(8);
          for (std::int32_t& id : document)
            id = static_cast<std::int32_t>('a' + random() % 5 * (random() % 5));
          writer.append(document);
          writer.end_document(std::ssize(document));
        }
      });
}

/// Rows of padding choose no expert: neither losses, counts, limits nor gradients know them.
class PaddedExperts : public ::testing::Test {
 protected:
  struct Found {
    Terms terms;
    std::vector<double> weights, evaluated;
  };
  Found run(grid::Communicator& world, std::int64_t sequence, Keys keys) const {
    keys.insert(keys.end(),
                {text("model.sequence=", sequence), "data.packing=documents", "model.dropout=0"});
    Found found;
    const deck::Config config = config_of(world, keys);
    Rig rig(config, documents_, world);
    found.terms = terms_of(rig);
    const Evaluation evaluation = rig.engine->evaluate(
        data::Windows(documents_, data::SampleForm(config.model)), 5, std::vector(257, 1));
    for (const LossSum& loss : evaluation.losses) found.evaluated.push_back(loss.mean());
    for (const auto* more : {&evaluation.expert_loads, &evaluation.dropped_choices})
      found.evaluated.insert(found.evaluated.end(), more->begin(), more->end());
    found.weights = weights_of(whole_arrays(*rig.engine, world));
    return found;
  }
  /// Compares values to 1e-10, relative to each or to `largest`.
  static void expect_equal(const std::vector<double>& found, const std::vector<double>& expected,
                           const char* what, double largest = 0) {
    ASSERT_EQ(found.size(), expected.size()) << what;
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], expected[i], 1e-10 * std::max(largest, std::abs(expected[i])))
          << what << ' ' << i;
  }

  TemporaryFolder folder_;
  data::TokenFile documents_{write_equal_documents(folder_)};
};

TEST_F(PaddedExperts, HaveTheResultsOfSamplesWithoutPadding) {
  const std::vector<Keys> models{{},
                                 {"experts.capacity=0.9"},
                                 {"experts.balance=batch", "experts.normalised=false"},
                                 {"experts.score=sigmoid", "experts.z_weight=0",
                                  "experts.choice_bias=true", "experts.bias_rate=0.01"},
                                 {"experts.score=sigmoid", "experts.z_weight=0",
                                  "experts.balance=batch", "experts.shared_feed_forward=12"},
                                 {"experts.rows=0.6", "experts.capacity=0.7"}};
  std::vector<std::pair<int, Keys>> layouts{
      {2, {"parallel.expert=2", "parallel.data=2"}},
      {3, {"parallel.expert=3", "parallel.data=3", "parallel.shard=weights"}},
      {4, {"parallel.expert=4", "parallel.context=2", "parallel.data=2"}},
      {4,
       {"parallel.expert=2", "parallel.tensor=2", "parallel.data=2",
        "parallel.sequence_parallel=true", "parallel.recompute=full"}}};
  for (const auto& layout : layouts_of_ranks()) layouts.push_back(layout);
  for (std::size_t m = 0; m < models.size(); ++m) {
    Found expected;
    if (runtime().rank() == 0) expected = run(*grid::Communicator::self(), 7, models[m]);
    std::size_t turn = 0;
    for (const auto& [ranks, layout] : layouts) {
      if (ranks != runtime().ranks()) continue;
      if (++turn % 3 != m % 3 && ranks > 1) continue;  // each layout has two of the models
      Keys keys = models[m];
      keys.insert(keys.end(), layout.begin(), layout.end());
      SCOPED_TRACE(join(keys, " "));
      const Found found = run(runtime().world(), 11, keys);
      if (runtime().rank() > 0) continue;
      for (std::size_t step = 0; step < expected.terms.size(); ++step)
        expect_equal(found.terms[step], expected.terms[step], "term");
      expect_equal(found.weights, expected.weights, "weight", 1);
      expect_equal(found.evaluated, expected.evaluated, "evaluated term");
    }
  }
}

constexpr const char* changing_bias =
    "experts.choice_bias=true experts.bias_rate=0.01 experts.score=sigmoid experts.z_weight=0";

class ExpertBias : public Layouts {
 protected:
  static Layout changing(Layout layout) {
    layout.family = Family::mixtral;
    layout.property = text(five_experts, " ", changing_bias);
    return layout;
  }
  /// The biases of the layers after steps, by name.
  static std::map<std::string, std::vector<double>> biases(train::Engine& engine,
                                                           grid::Communicator& world) {
    auto arrays = whole_arrays(engine, world);
    std::erase_if(arrays, [](const auto& array) {
      return !array.first.ends_with(".experts.bias") || array.first.starts_with("optimizer.");
    });
    return arrays;
  }
};

/// The number of tokens of the whole global batch decides, on every layout.
TEST_F(ExpertBias, DoesNotDependOnTheLayout) {
  using enum Recompute;
  using enum OptimizerKind;
  std::vector<Layout> layouts{{2, 1, 1, "1f1b", 1, false, true, none, Sharding::none, adamw},
                              {2, 1, 1, "1f1b", 1, true, true, full, Sharding::none, lamb},
                              {1, 2, 1, "zb-h1", 1, false, true, selective, Sharding::none, adamw},
                              {1, 1, 2, "1f1b", 1, false, true, none, Sharding::weights, adamw},
                              {1, 1, 2, "1f1b", 1, false, true, full, Sharding::optimizer, sgd},
                              {1, 1, 3, "1f1b", 1, false, true, none, Sharding::gradients, adamw},
                              {2, 1, 2, "1f1b", 1, true, true, none, Sharding::optimizer, adamw},
                              {1, 2, 2, "gpipe", 1, false, true, none, Sharding::weights, adamw}};
  for (Layout layout : {layouts[3], layouts[6], layouts[7]}) {
    layout.more.emplace_back("parallel.expert=2");
    layouts.push_back(layout);
  }
  layouts.push_back({});
  layouts.back().context = 2;
  for (Layout& layout : layouts) layout = changing(layout);
  expect_the_answer_of_one_rank(
      layouts, [&](const Layout& layout, grid::Communicator& world) { return run(layout, world); });
}

/// Equal tokens all choose the same experts: these are above the mean in every step. In bf16, the
/// steps are smaller than the distance of numbers near the bias, which is kept in fp32.
TEST_F(ExpertBias, MovesByTheRateTowardsEqualUse) {
  const TemporaryFolder folder;
  data::TokenFileWriter writer(folder.file("one_id.h5"), "bytes", 257);
  writer.append(std::vector<std::int32_t>(3000, 'a'));
  writer.end_document(writer.tokens());
  writer.commit("test");
  const data::TokenFile one_id(folder.file("one_id.h5"));
  const Layout layout = changing({1, 1, runtime().ranks()});
  for (const char* compute : {"fp64", "bf16"}) {
    SCOPED_TRACE(compute);
    std::vector<std::string> keys = layout.overrides();
    keys.insert(keys.end(),
                {text("precision.compute=", compute), "experts.bias_rate=0.0009765625",
                 "optimizer.learning_rate=1e-9", "model.dropout=0"});  // the choices stay
    Rig rig(small_config(12, 1, runtime().ranks(), keys), one_id);
    rig.run(1, 2);
    for (const auto& [name, values] : biases(*rig.engine, runtime().world())) {
      EXPECT_EQ(std::ranges::count(values, -2 / 1024.0), 2) << name;
      EXPECT_EQ(std::ranges::count(values, 2 / 1024.0), 3) << name;
    }
  }
}

TEST_F(ExpertLosses, HaveTheSameBitsWithEverySchedule) {
  if (runtime().ranks() != 3) GTEST_SKIP() << "needs 3 ranks";
  const Terms expected = terms_of(tokens_, runtime().world(), {"parallel.pipeline=3"});
  for (const char* schedule : {"gpipe", "zb-h1"})
    EXPECT_EQ(terms_of(tokens_, runtime().world(),
                       {"parallel.pipeline=3", text("parallel.schedule=", schedule)}),
              expected)
        << schedule;
  const auto self = grid::Communicator::self();
  if (runtime().rank() > 0) return;
  EXPECT_EQ(terms_of(tokens_, *self, {}), expected);
}

}  // namespace
}  // namespace trireme::train
