// Adapters and frozen weights: every layout trains them as one rank does.
#include "train/layouts.hpp"

namespace trireme::train {
namespace {

using enum OptimizerKind;
using enum Recompute;

/// Adapters of all products, whose inputs are dropped by masks of global elements.
std::vector<std::string> adapters(const char* up, const char* kind = "lora") {
  return {text("adapter.kind=", kind), "adapter.rank=3", "adapter.dropout=0.2",
          text("adapter.targets=attention.query,attention.key_value,attention.output,", up,
               ",feed_forward.down")};
}

constexpr const char* shared_experts_after_a_dense_layer =
    "experts.number=5 experts.active=2 experts.feed_forward=24 experts.shared_feed_forward=17 "
    "experts.first_layer=1";

Layout with(Layout layout, std::vector<std::string> trained) {
  layout.trained = std::move(trained);
  return layout;
}

/// Layouts of any number of ranks, of which those of this number are taken.
void keep_those_of(std::vector<Layout>& layouts, int ranks) {
  std::erase_if(layouts, [&](const Layout& l) {
    return l.tensor * l.pipeline * l.data * l.context != ranks;
  });
}

TEST_F(Layouts, MatchOneRankForAdapters) {
  const auto gated = adapters("feed_forward.gate_up");
  const auto plain = adapters("feed_forward.up");
  Layout ring{1, 1, 1};
  ring.context = 2;
  ring.family = Family::llama;
  std::vector<Layout> layouts{
      with({2, 1, 1, "1f1b", 1, true, true, none, Sharding::none, adamw, Family::llama, 1}, gated),
      with({1, 2, 1, "zb-h1", 1, false, false, none, Sharding::none, adamw, Family::llama, 2},
           gated),
      with({1, 1, 2, "1f1b", 1, false, true, full, Sharding::optimizer, adamw}, plain),
      with(ring, gated),
      with({3, 1, 1, "1f1b", 1, false, true, selective, Sharding::none, adamw, Family::llama, 2},
           gated),
      with({1, 3, 1, "interleaved", 2, false, true, none, Sharding::none, lamb}, plain),
      with({2, 2, 1, "gpipe", 1, true, false, selective, Sharding::none, adamw}, plain),
      with({1, 2, 2, "zb-v", 2, false, true, none, Sharding::optimizer, sgd, Family::llama, 3},
           gated)};
  // Dense layers and shared experts, with frozen experts beside them.
  const std::vector<std::string> shared{
      "adapter.kind=lora", "adapter.rank=3", "adapter.dropout=0.2",
      "adapter.targets=attention.query,feed_forward.gate_up,feed_forward.down,"
      "experts.shared_gate_up,experts.shared_down"};
  const auto with_experts = [&](int tensor, int pipeline, int data, int expert) {
    Layout layout{tensor, pipeline, data, "1f1b", 1, tensor > 1};
    layout.family = Family::qwen2_moe;
    layout.key_value_heads = 2;
    layout.property = shared_experts_after_a_dense_layer;
    layout.trained = shared;
    if (expert > 1) layout.more.push_back(text("parallel.expert=", expert));
    return layout;
  };
  for (const Layout& layout :
       {with_experts(2, 1, 1, 1), with_experts(1, 2, 1, 1), with_experts(1, 1, 2, 2),
        with_experts(3, 1, 1, 1), with_experts(2, 1, 2, 2), with_experts(1, 2, 2, 2)})
    layouts.push_back(layout);
  keep_those_of(layouts, runtime().ranks());
  for (const Layout& layout : layouts) expect_the_same_answer(layout);
}

/// Adapters of an encoder and of cross-attention.
TEST_F(Layouts, MatchOneRankForAdaptersOfAnEncoder) {
  const auto t5 = [](Layout layout, const char* property, const char* kind, const char* parts,
                     const char* up) {
    layout.family = Family::t5;
    layout.key_value_heads = 6;
    layout.property = property;
    layout.trained = {text("adapter.kind=", kind), "adapter.rank=3", "adapter.dropout=0.2",
                      text("adapter.parts=", parts),
                      text("adapter.targets=attention.query,attention.output,cross_attention.query,"
                           "cross_attention.key_value,cross_attention.output,feed_forward.down,",
                           up)};
    return layout;
  };
  constexpr const char* both = "encoder,layers";
  constexpr const char *up = "feed_forward.up", *gated = "feed_forward.gate_up";
  std::vector<Layout> layouts{
      t5({2, 1, 1, "1f1b", 1, true, true}, encoder_of_three, "lora", both, up),
      t5({1, 2, 1, "zb-h1", 1, false, false}, gated_encoder_of_three, "dora", "layers", gated),
      t5({1, 1, 2, "1f1b", 1, false, true, full, Sharding::weights}, encoder_of_three, "lora", both,
         up),
      t5({3, 1, 1, "1f1b", 1, false, false, selective}, gated_encoder_of_three, "dora", both,
         gated),
      t5({1, 3, 1, "zb-v", 2, false, true}, encoder_of_three, "lora", both, up),
      t5({1, 1, 3, "1f1b", 1, false, true, none, Sharding::optimizer}, encoder_of_three, "lora",
         both, up),
      t5({2, 2, 1, "1f1b", 1, true, false, none, Sharding::none, lamb}, gated_encoder_of_three,
         "dora", both, gated),
      t5({1, 2, 2, "interleaved", 2, false, true, none, Sharding::optimizer}, encoder_of_three,
         "lora", "layers", up)};
  keep_those_of(layouts, runtime().ranks());
  for (const Layout& layout : layouts) expect_the_same_answer(layout);
}

/// Parts with learning rates of their own.
TEST_F(Layouts, MatchOneRankForRateFactors) {
  const std::vector<std::string> parts{
      "optimizer.rate_factors=0.1 embedding,3 layers.1-2,0.5 layers.3.attention_norm"};
  const std::vector<std::string> experts{"optimizer.rate_factors=0.1 layers.*.experts.router"};
  std::vector<Layout> layouts{
      with({2, 1, 1, "1f1b", 1, true, true, none, Sharding::none, adafactor}, parts),
      with({1, 2, 1, "zb-h1", 1, false, true, none, Sharding::none, lion}, parts),
      with({1, 1, 2, "1f1b", 1, false, true, none, Sharding::optimizer, muon}, parts),
      with({3, 1, 1, "1f1b", 1, false, false, none, Sharding::none, lars}, parts),
      with({1, 1, 3, "1f1b", 1, false, true, none, Sharding::weights, lamb}, parts),
      with({1, 3, 1, "interleaved", 2, false, true, none, Sharding::none, sgd}, parts),
      with({2, 1, 2, "1f1b", 1, true, true, none, Sharding::gradients, adamw}, parts),
      with({1, 2, 2, "zb-v", 2, false, false, none, Sharding::optimizer, adafactor}, parts),
      with({2, 2, 1, "gpipe", 1, false, false, none, Sharding::none, muon}, parts)};
  Layout divided{2, 1, 1, "1f1b", 1, true, true, none, Sharding::none, lamb, Family::mixtral};
  divided.property = five_experts;
  layouts.push_back(with(divided, experts));
  keep_those_of(layouts, runtime().ranks());
  for (const Layout& layout : layouts) expect_the_same_answer(layout);
}

/// Magnitudes of outputs that the tensor axis splits, and of whole ones, whose norms it sums.
TEST_F(Layouts, MatchOneRankForMagnitudes) {
  const auto gated = adapters("feed_forward.gate_up", "dora");
  const auto plain = adapters("feed_forward.up", "dora");
  const std::vector<std::string> fused{
      "adapter.kind=dora", "adapter.targets=attention.query_key_value,attention.output",
      "adapter.also_trained=final_norm,layers.*.attention.query_bias,"
      "layers.*.attention.key_value_bias,layers.*.attention.output"};
  Layout ring{1, 1, 1};
  ring.context = 2;
  ring.family = Family::llama;
  std::vector<Layout> layouts{
      with({2, 1, 1, "1f1b", 1, true, true, none, Sharding::none, adamw, Family::llama, 1}, gated),
      with({1, 2, 1, "zb-h1", 1, false, false, none, Sharding::none, adamw}, fused),
      with({1, 1, 2, "1f1b", 1, false, true, full, Sharding::weights, adamw}, plain),
      with(ring, gated),
      with({3, 1, 1, "1f1b", 1, false, true, selective, Sharding::none, adamw}, fused),
      with({1, 3, 1, "interleaved", 2, false, true, none, Sharding::none, lamb}, plain),
      with({2, 2, 1, "gpipe", 1, true, false, selective, Sharding::none, adamw}, plain),
      with({2, 1, 2, "1f1b", 1, true, true, none, Sharding::weights, adamw, Family::llama, 2},
           gated),
      with({1, 2, 2, "zb-v", 2, false, true, none, Sharding::optimizer, sgd, Family::llama, 3},
           gated)};
  keep_those_of(layouts, runtime().ranks());
  for (const Layout& layout : layouts) expect_the_same_answer(layout);
}

/// Replicas divide frozen weights as trained ones; the bits are those of whole weights.
TEST_F(Layouts, MatchUndividedFrozenWeightsBitForBit) {
  const int ranks = runtime().ranks();
  if (ranks == 1 || ranks % 2 == 1) return;
  const std::vector<std::string> some{
      "optimizer.frozen=layers.*.attention.query,layers.*.attention.key_value,layers.3,"
      "layers.1.feed_forward.up,layers.4.feed_forward_norm"};
  const std::vector<std::string> beginning{"optimizer.frozen=embedding,layers.0-1"};
  const int data = ranks == 2 ? 2 : ranks / 2;
  for (const auto& trained : {some, beginning, adapters("feed_forward.up")})
    for (const bool tied : {true, false}) {
      Layout layout{ranks / data, 1, data, "1f1b", 1, ranks > 2, tied};
      layout.trained = trained;
      const Outcome whole = run(layout, runtime().world());
      for (const Sharding shard : {Sharding::gradients, Sharding::weights}) {
        layout.shard = shard;
        SCOPED_TRACE(layout.name());
        const Outcome divided = run(layout, runtime().world());
        EXPECT_EQ(divided.trace, whole.trace);
        EXPECT_EQ(divided.weights, whole.weights);
      }
    }
}

TEST_F(Layouts, MatchOneRankForFrozenWeights) {
  const std::vector<std::string> beginning{"optimizer.frozen=embedding,layers.0-1"};
  const std::vector<std::string> some{
      "optimizer.frozen=layers.*.attention.query,layers.*.attention.key_value,layers.3,"
      "layers.1.feed_forward.up,layers.4.feed_forward_norm"};
  const std::vector<std::string> fused{
      "adapter.kind=lora", "adapter.targets=attention.query_key_value",
      "adapter.also_trained=final_norm,layers.*.attention_norm", "optimizer.frozen=layers.0"};
  std::vector<Layout> layouts{
      with({2, 1, 1, "1f1b", 1, true, true}, beginning),
      with({1, 2, 1, "zb-h1", 1, false, true}, beginning),
      with({1, 1, 2, "1f1b", 1, false, false, full, Sharding::weights}, some),
      with({1, 3, 1, "interleaved", 2, false, false}, beginning),
      with({3, 1, 1, "1f1b", 1, true, true}, fused),
      with({2, 2, 1, "zb-h1", 1, true, true, selective}, some),
      with({2, 2, 1, "1f1b", 1, false, false}, fused),
      with({1, 2, 2, "zb-h1", 1, false, true, none, Sharding::weights}, beginning),
      with({2, 1, 2, "1f1b", 1, true, true, none, Sharding::gradients}, fused),
      with({1, 4, 1, "gpipe", 1, false, false}, beginning)};
  keep_those_of(layouts, runtime().ranks());
  for (const Layout& layout : layouts) expect_the_same_answer(layout);
}

}  // namespace
}  // namespace trireme::train
