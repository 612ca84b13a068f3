// Layouts of the ranks against one rank, and layouts with the same bits: promise 1.
#include "train/layouts.hpp"

#include <set>

namespace trireme::train {
namespace {

bool shares_layers(const std::string& property) {
  return property.starts_with("model.shared_layers");
}

TEST_F(Layouts, MatchOneRank) {
  expect_the_same_answer_of_layouts([](Family family, const std::string& property) {
    return family == Family::gpt && !shares_layers(property);
  });
}

TEST_F(Layouts, MatchOneRankForLlama) {
  expect_the_same_answer_of_layouts(
      [](Family family, const std::string&) { return family == Family::llama; });
}

/// Each pair of options that a layout of any of these numbers of ranks has is in a chosen one, but
/// those of a model and a schedule.
TEST_F(Layouts, ChosenLayoutsCoverEveryPair) {
  if (runtime().ranks() > 1) return;
  using Options = std::vector<std::string>;
  const auto options_of = [](const Layout& l) {
    return Options{text(name_of(l.family), l.key_value_heads, l.property),
                   text("tensor ", l.tensor),
                   text("pipeline ", l.pipeline),
                   text("data ", l.data),
                   text(l.schedule, l.chunks),
                   text("sequence parallel ", l.sequence_parallel),
                   text("tied ", l.tied),
                   "order " + l.order,
                   kind_of(l)};
  };
  const auto pairs_of = [&](const std::vector<Layout>& layouts) {
    std::set<std::pair<std::string, std::string>> pairs;
    for (const Layout& layout : layouts) {
      const Options options = options_of(layout);
      for (std::size_t a = 0; a < options.size(); ++a)
        for (std::size_t b = a + 1; b < options.size(); ++b)
          if (a != 0 || b != 4) pairs.emplace(options[a], options[b]);
    }
    return pairs;
  };
  std::vector<Layout> all;
  for (const Model& model : models())
    for (const int ranks : {1, 2, 3, 4, 6, 8, 12}) {
      const auto some = all_layouts(ranks, model);
      all.insert(all.end(), some.begin(), some.end());
    }
  EXPECT_EQ(pairs_of(chosen_layouts()), pairs_of(all));
  EXPECT_LT(10 * chosen_layouts().size(), all.size());
}

/// The soak test: every layout of these ranks trains some of the models, which take turns.
TEST_F(Layouts, AllMatchOneRank) {
  const std::vector<Model> models{{Family::llama, 1},
                                  {Family::gpt},
                                  {Family::llama, 2},
                                  {Family::bert},
                                  {Family::llama, 3},
                                  {Family::gpt, 3, "model.shared_layers=2"},
                                  {Family::qwen2, 2},
                                  {Family::bert, 3, "model.shared_layers=2"},
                                  {Family::qwen3, 2, "model.head_size=8"},
                                  {Family::mistral, 3, "model.window=11"},
                                  {Family::qwen2, 2, "model.shared_layers=2"},
                                  {Family::gemma2, 2, "model.window=11"},
                                  {Family::gemma3, 1, "model.window=11"},
                                  {Family::olmo2, 2},
                                  {Family::mixtral, 3, five_experts},
                                  {Family::qwen3_moe, 2, experts_in_some_layers},
                                  {Family::olmoe, 2, "experts.number=5 experts.active=3"},
                                  {Family::qwen2_moe, 2, five_and_a_shared_expert},
                                  {Family::gpt_oss, 2, experts_and_windows},
                                  {Family::deepseek_v3, 6, latent_and_groups},
                                  {Family::t5, 6, encoder_of_three},
                                  {Family::t5, 6, gated_encoder_of_three}};
  const std::size_t number = all_layouts(runtime().ranks(), models[0]).size();
  const auto turns = static_cast<std::size_t>(models_per_layout());
  std::size_t turn = 0;
  for (std::size_t i = 0; i < number; ++i)
    for (std::size_t trained = 0; trained < std::min(turns, models.size()); ++turn) {
      const auto layouts = all_layouts(runtime().ranks(), models[turn % models.size()]);
      if (i >= layouts.size()) continue;  // more tensor ranks than the model may have
      expect_the_same_answer(layouts[i]);
      ++trained;
    }
}

/// More tensor ranks than heads of keys and values, or cuts through their groups: each tensor size
/// with every axis and optimizer, of what the soak test has in all combinations.
TEST_F(Layouts, MatchOneRankWithSharedHeads) {
  using enum OptimizerKind;
  using enum Recompute;
  const Family l = Family::llama;
  const Family q = Family::qwen2;  // biases are shared too
  const Family o = Family::olmo2;  // norms of all heads of keys count a shared head once
  for (const Layout& layout :
       {Layout{2, 1, 1, "1f1b", 1, true, true, none, Sharding::none, adamw, l, 1},
        {3, 1, 1, "1f1b", 1, false, true, selective, Sharding::none, adamw, l, 2},
        {4, 1, 1, "1f1b", 1, true, true, none, Sharding::none, lamb, l, 2},
        {2, 2, 1, "interleaved", 2, false, true, none, Sharding::none, lamb, l, 2},
        {6, 1, 1, "1f1b", 1, true, true, none, Sharding::none, adamw, l, 1},
        {3, 1, 2, "1f1b", 1, false, true, none, Sharding::optimizer, lamb, l, 2},
        {4, 2, 1, "zb-h1", 1, true, true, full, Sharding::none, adamw, l, 2},
        {4, 1, 2, "1f1b", 1, false, true, none, Sharding::optimizer, adamw, l, 2},
        {6, 2, 1, "interleaved", 2, true, true, none, Sharding::none, adamw, l, 2},
        {3, 1, 1, "1f1b", 1, true, true, none, Sharding::none, adamw, q, 2},
        {4, 1, 1, "1f1b", 1, false, true, selective, Sharding::none, lamb, q, 2},
        {4, 2, 1, "zb-h1", 1, true, true, full, Sharding::none, adamw, q, 2},
        {2, 1, 1, "1f1b", 1, false, true, selective, Sharding::none, adamw, o, 1},
        {3, 1, 1, "zb-h1", 1, true, true, full, Sharding::none, adamw, o, 2},
        {4, 1, 1, "1f1b", 1, false, true, none, Sharding::none, lamb, o, 1},
        {4, 1, 2, "1f1b", 1, true, false, none, Sharding::gradients, adamw, o, 2}})
    if (layout.tensor * layout.pipeline * layout.data == runtime().ranks())
      expect_the_same_answer(layout);
}

TEST_F(Layouts, MatchOneRankForLlamaLikeFamilies) {
  expect_the_same_answer_of_layouts([](Family family, const std::string& property) {
    return has_groups(family) && family != Family::llama && !shares_layers(property) &&
           !deck::preset(family).experts.present();
  });
}

/// Tensor ranks hold different numbers of the 5 experts.
TEST_F(Layouts, MatchOneRankWithExperts) {
  using enum OptimizerKind;
  using enum Recompute;
  std::vector<Layout> layouts{
      {2, 1, 1, "1f1b", 1, false, true, none, Sharding::none, adamw, Family::mixtral, 3},
      {2, 1, 1, "zb-h1", 1, true, false, selective, Sharding::none, lamb, Family::mixtral, 3},
      {1, 2, 1, "interleaved", 2, false, true, full, Sharding::none, adamw, Family::mixtral, 3},
      {1, 1, 2, "1f1b", 1, false, true, none, Sharding::weights, adamw, Family::mixtral, 3},
      {3, 1, 1, "1f1b", 1, true, true, full, Sharding::none, adamw, Family::mixtral, 3},
      {3, 1, 1, "zb-h1", 1, false, true, none, Sharding::none, adamw, Family::mixtral, 3},
      {4, 1, 1, "1f1b", 1, true, true, none, Sharding::none, adamw, Family::mixtral, 3},
      {4, 1, 1, "1f1b", 1, false, false, full, Sharding::none, lamb, Family::mixtral, 3},
      {2, 2, 1, "zb-v", 2, true, true, selective, Sharding::none, adamw, Family::mixtral, 3},
      {2, 1, 2, "1f1b", 1, true, true, none, Sharding::optimizer, adamw, Family::mixtral, 3},
      {4, 2, 1, "interleaved", 2, true, true, none, Sharding::none, adamw, Family::mixtral, 3},
      {3, 2, 1, "1f1b", 1, false, true, selective, Sharding::none, adamw, Family::mixtral, 3},
      {4, 1, 3, "zb-h1", 1, true, true, full, Sharding::gradients, adamw, Family::mixtral, 3}};
  for (const int tensor : {1, 2, 3, 4}) {
    layouts.push_back({tensor, 1, 1, "1f1b", 1, tensor > 1, true, none, Sharding::none, adamw,
                       Family::mixtral, 3});
    layouts.back().context = 2;
    layouts.push_back(layouts.back());
    layouts.back().sequence_parallel = false;
    layouts.back().recompute = full;
  }
  for (Layout& layout : layouts) {
    layout.property = five_experts;
    if (layout.ranks() == runtime().ranks()) expect_the_same_answer(layout);
  }
  expect_the_same_answer_of_layouts(
      [](Family family, const std::string&) { return deck::preset(family).experts.present(); });
}

/// Of 5 layers three have the weights of group 0 and two those of group 1.
TEST_F(Layouts, MatchOneRankWithSharedLayers) {
  expect_the_same_answer_of_layouts(
      [](Family, const std::string& property) { return shares_layers(property); });
}

TEST_F(Layouts, MatchOneRankForT5) {
  expect_the_same_answer_of_layouts(
      [](Family family, const std::string&) { return family == Family::t5; });
}

TEST_F(Layouts, MatchOneRankForBert) {
  expect_the_same_answer_of_layouts([](Family family, const std::string& property) {
    return family == Family::bert && !shares_layers(property);
  });
}

/// Same tensor and data size, micro-batch and machine: the same bits, whatever the schedule, the
/// chunks, the size of the pipeline, what is computed again and who keeps the optimizer's state.
TEST_F(Layouts, SchedulesAndPipelinesKeepTheBits) {
  for (const Fixed& f : {Fixed{1, 1, false, true},
                         {2, 1, true, false},
                         {1, 2, false, true},
                         {2, 2, true, false},
                         {1, 3, false, true}})
    expect_the_same_bits(f);
}

/// Empty first, middle and last stages, with every kind of schedule.
TEST_F(Layouts, PartitionsKeepTheBits) {
  const int ranks = runtime().ranks();
  for (const auto& [schedule, stages, partition] : {std::tuple{"1f1b", 2, "[4, 1]"},
                                                    {"gpipe", 2, "[0, 5]"},
                                                    {"zb-h1", 2, "[5, 0]"},
                                                    {"interleaved", 4, "[1, 0, 3, 1]"},
                                                    {"zb-v", 4, "[0, 3, 2, 0]"},
                                                    {"zb-h1", 3, "[2, 0, 3]"},
                                                    {"2bw", 3, "[1, 3, 1]"}}) {
    const int chunks = stages == 4 ? 2 : 1;
    if (stages / chunks != ranks) continue;
    Layout layout{1, ranks, 1, schedule, chunks};
    layout.steps = 3;  // gradients of 2bw are a step late
    const Outcome by_cost = run(layout, runtime().world());
    layout.more = {text("parallel.partition=", partition)};
    SCOPED_TRACE(layout.name());
    const Outcome by_hand = run(layout, runtime().world());
    if (runtime().rank() > 0) continue;
    EXPECT_EQ(by_hand.trace, by_cost.trace);
    EXPECT_EQ(by_hand.weights, by_cost.weights);
  }
}

TEST_F(Layouts, SchedulesAndPipelinesKeepTheBitsForLlama) {
  for (const Fixed& f : {Fixed{1, 1, false, false, Family::llama},
                         {2, 1, true, true, Family::llama},
                         {3, 1, true, false, Family::llama, 1},
                         {2, 2, true, false, Family::llama, 1}})
    expect_the_same_bits(f);
  if (models_per_layout() == 0) return;
  for (const Fixed& f : {Fixed{4, 1, false, true, Family::llama, 2},
                         {3, 2, false, true, Family::llama, 2},
                         {6, 1, true, true, Family::llama, 1}})
    expect_the_same_bits(f);
}

TEST_F(Layouts, SchedulesAndPipelinesKeepTheBitsForLlamaLikeFamilies) {
  for (const Fixed& f : {Fixed{2, 1, true, true, Family::qwen2, 2},
                         {1, 1, false, false, Family::qwen3, 3, "model.head_size=8"},
                         {2, 2, true, true, Family::qwen3, 1, "model.head_size=8"},
                         {1, 2, false, true, Family::mistral, 3, "model.window=17"},
                         {2, 1, true, true, Family::gemma2, 2, "model.window=17"},
                         {2, 1, true, true, Family::olmo2, 2},
                         {1, 2, false, true, Family::mixtral, 3, five_experts},
                         {2, 1, true, true, Family::mixtral, 3, five_experts},
                         {2, 1, true, true, Family::qwen2_moe, 2, five_and_a_shared_expert},
                         {2, 1, true, true, Family::gpt_oss, 2, experts_and_windows},
                         {2, 1, true, true, Family::deepseek_v3, 6, latent_and_groups},
                         {1, 1, false, false, Family::qwen3_moe, 2, experts_in_some_layers}})
    expect_the_same_bits(f);
}

TEST_F(Layouts, SchedulesAndPipelinesKeepTheBitsForT5) {
  for (const Fixed& f : {Fixed{1, 1, false, true, Family::t5, 6, encoder_of_three},
                         {2, 1, true, false, Family::t5, 6, gated_encoder_of_three},
                         {1, 2, false, false, Family::t5, 6, encoder_of_three}})
    expect_the_same_bits(f);
}

/// The border between encoder and decoder at every place of a stage.
TEST_F(Layouts, BordersOfTheEncoderKeepTheBits) {
  if (runtime().ranks() != 2) return;
  Layout layout{1, 2, 1, "1f1b", 1};
  layout.family = Family::t5;
  layout.property = encoder_of_three;
  const Outcome by_cost = run(layout, runtime().world());
  for (const auto& [schedule, first] : {std::pair{"1f1b", 0},
                                        {"zb-h1", 1},
                                        {"gpipe", 2},
                                        {"zb-h1", 3},
                                        {"2bw", 3},
                                        {"1f1b", 4},
                                        {"zb-h1", 7},
                                        {"1f1b", 8}}) {
    layout.schedule = schedule;
    layout.more = {text("parallel.partition=[", first, ", ", 8 - first, "]")};
    SCOPED_TRACE(layout.name());
    const Outcome by_hand = run(layout, runtime().world());
    if (runtime().rank() > 0 || layout.schedule == "2bw") continue;
    EXPECT_EQ(by_hand.trace, by_cost.trace);
    EXPECT_EQ(by_hand.weights, by_cost.weights);
  }
}

TEST_F(Layouts, SchedulesAndPipelinesKeepTheBitsForBert) {
  for (const Fixed& f : {Fixed{1, 1, false, true, Family::bert},
                         {2, 1, true, false, Family::bert},
                         {1, 2, false, true, Family::bert}})
    expect_the_same_bits(f);
}

constexpr OptimizerKind other_optimizers[] = {OptimizerKind::sgd,       OptimizerKind::lamb,
                                              OptimizerKind::lars,      OptimizerKind::muon,
                                              OptimizerKind::adafactor, OptimizerKind::lion};

TEST_F(Layouts, OtherOptimizersMatchOneRank) {
  const int ranks = runtime().ranks();
  for (const OptimizerKind optimizer : other_optimizers)
    for (const int tensor : {1, 2, 3})
      for (const int pipeline : {1, 2}) {
        const int data = ranks / (tensor * pipeline);
        if (tensor * pipeline * data != ranks || data > 3) continue;
        Layout layout{tensor,
                      pipeline,
                      data,
                      "1f1b",
                      1,
                      tensor > 1,
                      pipeline == 2,
                      Recompute::none,
                      Sharding::optimizer,
                      optimizer};
        // Lion takes the sign of a key bias's gradient, which is zero up to rounding.
        if (optimizer == OptimizerKind::lion) layout.property = "model.biases=none";
        expect_the_same_answer(layout);
      }
}

/// Rows and columns of experts, of shared heads and of matrices that tensor ranks divide by either
/// side, with every division of the state.
TEST_F(Layouts, AdafactorMatchesOneRankForEveryDivision) {
  const auto test = [this](int tensor, int pipeline, int data, Sharding shard, Family family,
                           int heads, const char* property, bool grouped = false) {
    if (runtime().ranks() != tensor * pipeline * data) return;
    Layout layout{tensor,  pipeline,
                  data,    "1f1b",
                  1,       tensor > 1,
                  true,    Recompute::none,
                  shard,   OptimizerKind::adafactor,
                  family,  heads,
                  property};
    if (grouped) layout.more.emplace_back("parallel.shard_group=2");
    expect_the_same_answer(layout);
  };
  using enum Sharding;
  for (const auto& [family, heads, property] :
       {std::tuple{Family::deepseek_v3, 6, latent_and_groups},
        {Family::mixtral, 2, five_experts},
        {Family::llama, 2, ""}}) {
    test(2, 1, 1, none, family, heads, property);
    test(1, 1, 2, weights, family, heads, property);
    test(1, 2, 1, none, family, heads, property);
    test(3, 1, 1, none, family, heads, property);
    test(1, 2, 2, optimizer, family, heads, property);
    test(4, 1, 1, none, family, heads, property);
    test(1, 1, 4, weights, family, heads, property, true);
    test(3, 2, 1, none, family, heads, property);
    test(2, 1, 3, gradients, family, heads, property);
    test(2, 2, 2, gradients, family, heads, property);
  }
}

/// Each expert's matrices on one tensor rank, the router's and those of latent attention on all.
TEST_F(Layouts, MuonMatchesOneRankForExperts) {
  const auto test = [this](int tensor, int pipeline, int data, Sharding shard, Family family,
                           const char* property) {
    if (runtime().ranks() != tensor * pipeline * data) return;
    Layout layout{tensor,  pipeline,
                  data,    "1f1b",
                  1,       tensor > 1,
                  true,    Recompute::none,
                  shard,   OptimizerKind::muon,
                  family,  6,
                  property};
    expect_the_same_answer(layout);
  };
  using enum Sharding;
  for (const auto& [family, property] :
       {std::pair{Family::deepseek_v3, latent_and_groups}, {Family::mixtral, five_experts}}) {
    test(1, 1, 1, none, family, property);
    test(2, 1, 1, none, family, property);
    test(1, 1, 2, weights, family, property);
    test(1, 2, 2, none, family, property);
    test(4, 1, 1, none, family, property);
    test(3, 2, 1, none, family, property);
    test(2, 1, 3, optimizer, family, property);
    test(2, 2, 2, gradients, family, property);
  }
}

TEST_F(Layouts, OtherOptimizersKeepTheBits) {
  const int ranks = runtime().ranks();
  for (const OptimizerKind optimizer : other_optimizers)
    for (const int data : {1, 2}) {
      Layout layout;
      layout.data = data;
      layout.optimizer = optimizer;
      if (ranks % data != 0) continue;
      const Outcome expected = run_on_some(layout);
      for (const int pipeline : {1, 2}) {
        layout.pipeline = pipeline;
        layout.shard = data > 1 ? Sharding::optimizer : Sharding::none;
        if (ranks != data * pipeline) continue;
        SCOPED_TRACE(layout.name());
        const Outcome found = run_on_some(layout);
        if (runtime().rank() > 0) continue;
        EXPECT_EQ(found.trace, expected.trace);
        EXPECT_EQ(found.weights, expected.weights);
      }
    }
}

}  // namespace
}  // namespace trireme::train
