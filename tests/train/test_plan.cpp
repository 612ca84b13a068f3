#include <trireme/architecture/saved.hpp>
#include <trireme/deck/families.hpp>
#include <trireme/plan/local_training.hpp>
#include <trireme/plan/ranks.hpp>

#include "support/pairs.hpp"
#include "support/training.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

/// What `trireme check` prints of memory and messages is what a run allocates and sends.
namespace trireme::train {
namespace {

using namespace trireme::testing;

struct PlanCase {
  const char* schedule;
  int chunks;
  bool sequence_parallel;
  bool tied;
  const char* recompute = "none";
  Sharding shard = Sharding::none;
  const char* optimizer = "adamw";
  Family family = Family::gpt;
  int key_value_heads = 3;  ///< with rotary positions; of 6 heads
  const char* compute = "fp64";
  Offload offload = Offload::none;
  const char* property =
      "model.layers=5";  ///< in the place of this one, which all have, or several
  bool fp8 = false;
  int context = 1;
  bool one_pass = false;  ///< one micro-batch per step, on one pipeline rank
};

/// Layers 1 and 3 of the model's 5 layers have experts.
constexpr const char* experts_in_two_layers =
    "model.head_size=8 experts.number=5 experts.active=2 experts.feed_forward=24 "
    "experts.first_layer=1 experts.every=2";

constexpr const char* latent_attention =
    "model.head_size=8 model.key_value_rank=12 model.query_rank=18 model.rotary_size=4 "
    "model.value_size=6 experts.number=6 experts.active=2 experts.feed_forward=24 "
    "experts.groups=3 experts.active_groups=2 experts.first_layer=1";

constexpr const char* latent_and_two_tokens =
    "model.head_size=8 model.key_value_rank=12 model.query_rank=18 model.rotary_size=4 "
    "model.value_size=6 experts.number=6 experts.active=2 experts.feed_forward=24 "
    "experts.groups=3 experts.active_groups=2 experts.first_layer=1 model.predicts=2";

/// An encoder of images of 4 tokens, and samples that have room for a document of the token file.
constexpr const char* images =
    "model.sequence=99 vision.layers=3 vision.hidden=20 vision.heads=4 vision.image=6 "
    "vision.patch=3 "
    "vision.images=2";
/// Squares of 3 × 3 of the 36 patches of an image are a token.
constexpr const char* pooled_images =
    "model.sequence=99 vision.family=gemma3 vision.layers=3 vision.hidden=20 vision.heads=4 "
    "vision.image=6 vision.patch=1 vision.pool=3 vision.images=2";
constexpr const char* frozen_images =
    "model.sequence=99 vision.layers=3 vision.hidden=20 vision.heads=4 vision.image=6 "
    "vision.patch=3 "
    "optimizer.frozen=vision";
/// An encoder whose targets have 23 tokens.
constexpr const char* encoder =
    "encoder.layers=3 encoder.sequence=27 encoder.noise=0.45 encoder.span=4";
constexpr const char* gated_encoder =
    "encoder.layers=3 encoder.sequence=27 encoder.noise=0.45 encoder.span=4 model.activation=geglu "
    "model.scaled_logits=false model.head_size=10";

/// Adapters of the encoder and of cross-attention, and of an encoder of images.
constexpr const char* adapted_encoder =
    "encoder.layers=3 encoder.sequence=27 encoder.noise=0.45 encoder.span=4 adapter.kind=lora "
    "adapter.dropout=0.1 "
    "adapter.targets=attention.query,cross_attention.key_value,cross_attention.output,"
    "feed_forward.up";
constexpr const char* scaled_cross_attention =
    "encoder.layers=3 encoder.sequence=27 encoder.noise=0.45 encoder.span=4 adapter.kind=dora "
    "adapter.parts=layers adapter.targets=cross_attention.key_value,feed_forward.down";
constexpr const char* adapted_images =
    "model.sequence=99 vision.layers=3 vision.hidden=60 vision.heads=4 vision.image=6 "
    "vision.patch=3 vision.images=2 adapter.kind=dora adapter.parts=vision "
    "adapter.targets=attention.key_value,attention.output,feed_forward.up";

/// Number of cases at the front that run on every layout: each has an option that no other has.
constexpr std::size_t cases_on_every_layout = 6;

std::vector<PlanCase> plan_cases() {
  using enum Sharding;
  return {
      {"v-half", 2, false, true, "none", none, "adamw", Family::llama},
      {"1f1b", 1, true, true, "none", optimizer, "adamw", Family::gpt, 3, "bf16", Offload::none,
       "run.audit_every=5"},
      {"1f1b", 1, true, true, "none", optimizer, "adamw", Family::gpt, 3, "bf16", Offload::none,
       "run.prompts=prompts.txt"},
      {"1f1b", 1, false, false, "selective", none, "adamw", Family::mistral, 3, "fp64",
       Offload::none, "model.window=17"},
      {"1f1b", 1, true, true, "selective", optimizer, "adamw", Family::gemma3, 2, "fp32",
       Offload::none, "model.window=17"},
      {"zb-h1", 1, true, false, "none", none, "adamw", Family::gpt, 3, "fp64", Offload::none,
       "optimizer.frozen=layers.1.attention.output,layers.*.feed_forward.up"},
      {"1f1b", 1, false, true},
      {"interleaved", 2, true, true},
      {"zb-h1", 1, true, false},
      {"zb-v", 2, true, true, "selective", optimizer},
      {"dualpipe-v", 2, true, true, "selective", optimizer},
      {"gpipe", 1, false, false},
      {"1f1b", 1, true, true, "selective", optimizer},
      {"1f1b", 1, false, true, "full"},
      {"2bw", 1, true, true, "none", optimizer, "adamw", Family::gpt, 3, "bf16"},
      {"2bw", 1, false, false, "selective", none, "lamb", Family::bert},
      {"zb-h1", 1, true, true, "full", optimizer},
      {"1f1b", 1, true, true, "none", optimizer, "lamb"},
      {"gpipe", 1, false, false, "none", none, "lamb"},
      {"gpipe", 1, false, true, "none", optimizer, "sgd"},
      {"gpipe", 1, true, true, "full"},
      {"gpipe", 1, true, false, "selective", none, "adamw", Family::bert, 3, "bf16"},
      {"1f1b", 1, true, true, "selective", none, "adamw", Family::llama},
      {"zb-h1", 1, false, false, "none", optimizer, "adamw", Family::llama},
      {"1f1b", 1, true, false, "none", optimizer, "lamb", Family::llama, 2},
      {"interleaved", 2, false, true, "full", optimizer, "adamw", Family::llama, 1},
      {"interleaved", 2, true, true, "none", optimizer, "adamw", Family::bert},
      {"zb-h1", 1, true, false, "full", none, "adamw", Family::bert},
      {"1f1b", 1, false, true, "selective", none, "adamw", Family::bert, 3, "bf16"},
      {"1f1b", 1, true, true, "none", optimizer, "adamw", Family::gpt, 3, "bf16"},
      {"zb-h1", 1, false, false, "selective", none, "adamw", Family::llama, 3, "fp64",
       Offload::activations},
      {"1f1b", 1, true, true, "none", optimizer, "adamw", Family::gpt, 3, "bf16", Offload::both},
      {"interleaved", 2, false, true, "full", optimizer, "lamb", Family::bert, 3, "fp32",
       Offload::both},
      {"zb-h1", 1, false, true, "selective", none, "sgd", Family::llama, 2, "fp16"},
      {"interleaved", 2, true, false, "full", optimizer, "lamb", Family::gpt, 3, "fp32"},
      {"1f1b", 1, true, true, "selective", optimizer, "adamw", Family::qwen2, 2},
      {"1f1b", 1, true, true, "none", optimizer, "adamw", Family::gpt, 3, "bf16", Offload::none,
       "model.layers=5", true},
      {"zb-h1", 1, false, false, "selective", none, "adamw", Family::llama, 3, "bf16",
       Offload::none, "model.layers=5", true},
      {"zb-h1", 1, false, false, "none", none, "lamb", Family::qwen2, 3, "bf16"},
      {"1f1b", 1, true, true, "none", optimizer, "adamw", Family::qwen3, 2, "fp64", Offload::both,
       "model.head_size=8"},
      {"interleaved", 2, false, true, "full", none, "sgd", Family::qwen3, 3, "fp32", Offload::none,
       "model.head_size=8"},
      {"zb-h1", 1, true, true, "selective", optimizer, "adamw", Family::olmo2, 2, "bf16"},
      {"interleaved", 2, false, true, "full", none, "lamb", Family::olmo2, 3, "fp64"},
      {"1f1b", 1, true, true, "none", optimizer, "adamw", Family::mixtral, 3, "fp64", Offload::none,
       "experts.number=5"},
      {"zb-h1", 1, true, true, "none", weights, "adamw", Family::mixtral, 3, "bf16", Offload::none,
       "experts.number=5 experts.rows=0.7"},
      {"1f1b", 1, true, true, "selective", optimizer, "lamb", Family::gpt_oss, 3, "bf16",
       Offload::none, "experts.number=5 experts.split=true"},
      {"1f1b", 1, false, true, "full", none, "adamw", Family::gpt_oss, 3, "fp64", Offload::none,
       "experts.number=5 experts.capacity=0.8 experts.rows=0.4"},
      {"zb-h1", 1, true, false, "selective", none, "adamw", Family::qwen3_moe, 2, "bf16",
       Offload::none, experts_in_two_layers},
      {"interleaved", 2, false, true, "full", optimizer, "lamb", Family::olmoe, 3, "fp32",
       Offload::none, "experts.number=5 experts.active=3"},
      {"2bw", 1, true, true, "none", gradients, "adamw", Family::mixtral, 3, "bf16", Offload::none,
       "experts.number=5 experts.z_weight=0.01"},
      {"1f1b", 1, true, true, "none", optimizer, "adamw", Family::gpt, 3, "fp64", Offload::none,
       "model.shared_layers=2"},
      {"zb-h1", 1, false, true, "full", none, "lamb", Family::bert, 3, "fp32", Offload::none,
       "model.shared_layers=2"},
      {"1f1b", 1, true, true, "none", optimizer, "adamw", Family::gpt, 3, "fp64", Offload::none,
       shared_vocabulary},
      {"gpipe", 1, false, false, "full", none, "lamb", Family::llama, 2, "bf16", Offload::none,
       shared_vocabulary},
      {"zb-h1", 1, false, true, "selective", none, "adamw", Family::gpt, 3, "fp32",
       Offload::activations, shared_vocabulary},
      {"zb-h1", 1, true, false, "full", optimizer, "adamw", Family::llama, 1, "fp16", Offload::none,
       shared_vocabulary},
      {"1f1b", 1, false, true, "none", none, "adamw", Family::gpt, 3, "bf16", Offload::none,
       shared_vocabulary, true},
      {"1f1b", 1, true, true, "none", weights},
      {"zb-h1", 1, true, false, "full", weights, "adamw", Family::llama, 1, "bf16"},
      {"interleaved", 2, true, true, "selective", weights, "lamb", Family::bert},
      {"zb-v", 2, true, true, "none", weights, "adamw", Family::gpt, 3, "fp32", Offload::both},
      {"1f1b", 1, true, true, "none", weights, "adamw", Family::gpt, 3, "fp64", Offload::none,
       shared_vocabulary},
      {"1f1b", 1, true, true, "none", weights, "sgd", Family::gpt, 3, "fp64", Offload::none,
       "model.shared_layers=2"},
      {"2bw", 1, true, true, "none", gradients, "adamw", Family::gpt, 3, "bf16"},
      {"zb-h1", 1, true, true, "selective", weights, "adamw", Family::qwen2_moe, 2, "bf16",
       Offload::none, "experts.number=5 experts.shared_feed_forward=17"},
      {"zb-h1", 1, true, true, "selective", weights, "adamw", Family::gpt_oss, 2, "bf16",
       Offload::none, "experts.number=5 model.window=17"},
      {"interleaved", 2, false, true, "none", optimizer, "adamw", Family::gpt_oss, 3, "fp64",
       Offload::none, "experts.number=5 model.window=17"},
      {"zb-h1", 1, true, true, "selective", weights, "adamw", Family::deepseek_v3, 6, "bf16",
       Offload::none, latent_attention},
      {"interleaved", 2, false, true, "full", optimizer, "adamw", Family::deepseek_v3, 6, "fp64",
       Offload::none, latent_attention},
      {"2bw", 1, true, true, "none", none, "adamw", Family::deepseek_v3, 6, "bf16", Offload::none,
       latent_attention},
      {"1f1b", 1, true, true, "none", optimizer, "adamw", Family::t5, 6, "fp64", Offload::none,
       encoder},
      {"zb-h1", 1, true, false, "full", none, "adamw", Family::t5, 6, "bf16", Offload::none,
       gated_encoder},
      {"interleaved", 2, false, true, "selective", weights, "lamb", Family::t5, 6, "fp32",
       Offload::optimizer, encoder},
      {"zb-v", 2, true, false, "none", none, "adamw", Family::t5, 6, "fp64", Offload::none,
       encoder},
      {"1f1b", 1, true, false, "selective", none, "adamw", Family::llama, 3, "fp64", Offload::none,
       images},
      {"zb-h1", 1, false, true, "none", optimizer, "adamw", Family::gpt, 6, "bf16", Offload::none,
       images},
      {"interleaved", 2, true, false, "full", none, "adamw", Family::qwen3, 2, "fp32",
       Offload::optimizer, images},
      {"zb-h1", 1, true, true, "none", none, "adamw", Family::llama, 3, "fp64", Offload::none,
       frozen_images},
      {"1f1b", 1, true, false, "none", none, "adamw", Family::gemma3, 3, "fp64", Offload::none,
       pooled_images},
      {"zb-h1", 1, true, true, "selective", optimizer, "adamw", Family::gemma3, 3, "bf16",
       Offload::none, pooled_images},
      {"interleaved", 2, false, true, "full", weights, "adamw", Family::gemma3, 3, "fp32",
       Offload::optimizer, pooled_images},
      {"2bw", 1, false, true, "none", none, "adamw", Family::t5, 6, "bf16", Offload::none,
       gated_encoder},
      {"1f1b", 1, true, true, "none", optimizer, "adamw", Family::gpt, 3, "bf16", Offload::none,
       "model.predicts=2"},
      {"zb-h1", 1, true, false, "full", none, "adamw", Family::llama, 2, "fp64",
       Offload::activations, "model.predicts=3"},
      {"interleaved", 2, false, true, "selective", weights, "lamb", Family::gpt, 3, "fp32",
       Offload::none, "model.predicts=2"},
      {"gpipe", 1, false, false, "full", none, "adamw", Family::llama, 2, "bf16", Offload::none,
       "model.predicts=3"},
      {"zb-v", 2, true, true, "none", gradients, "adamw", Family::llama, 2, "fp64", Offload::none,
       "model.predicts=3"},
      {"2bw", 1, true, true, "none", none, "adamw", Family::deepseek_v3, 6, "bf16", Offload::none,
       latent_and_two_tokens},
      {"1f1b", 1, true, true, "none", none, "adamw", Family::llama, 2, "fp64", Offload::none,
       "adapter.kind=lora"},
      {"zb-h1", 1, false, false, "selective", optimizer, "adamw", Family::llama, 3, "bf16",
       Offload::none, "adapter.kind=lora"},
      {"interleaved", 2, true, true, "full", optimizer, "lamb", Family::gpt, 3, "fp32",
       Offload::none, "adapter.kind=lora"},
      {"1f1b", 1, true, true, "none", weights, "adamw", Family::llama, 2, "bf16", Offload::none,
       "adapter.kind=lora"},
      {"1f1b", 1, true, true, "none", optimizer, "adamw", Family::llama, 2, "fp32", Offload::none,
       "adapter.kind=dora"},
      {"2bw", 1, false, true, "none", none, "adamw", Family::gpt, 3, "bf16", Offload::none,
       "adapter.kind=dora"},
      {"1f1b", 1, true, true, "none", optimizer, "adamw", Family::t5, 6, "fp64", Offload::none,
       adapted_encoder},
      {"zb-h1", 1, true, true, "none", none, "adamw", Family::t5, 6, "bf16", Offload::none,
       scaled_cross_attention},
      {"zb-h1", 1, true, false, "none", weights, "adamw", Family::llama, 3, "fp64", Offload::none,
       adapted_images},
      {"1f1b", 1, true, true, "none", gradients, "adamw", Family::gpt, 3, "fp64", Offload::none,
       "optimizer.frozen=embedding,layers.0-1"},
      {"1f1b", 1, true, true, "none", optimizer, "adamw", Family::gpt, 3, "bf16", Offload::none,
       "optimizer.frozen=embedding,layers.0-1"}};
}

/// A tensor, pipeline and expert size, and a case of a model whose replicas divide the experts.
std::vector<std::tuple<int, int, int, PlanCase>> expert_cases() {
  using enum Sharding;
  const auto with = [](const char* schedule, int chunks, const char* recompute, Sharding shard,
                       const char* optimizer_kind, Family family, const char* compute,
                       const char* property, int context = 1, bool one_pass = false) {
    const int heads = family == Family::deepseek_v3 ? 6 : 3;
    PlanCase c{schedule, chunks,         true,   true,  recompute,
               shard,    optimizer_kind, family, heads, compute};
    c.property = property;
    c.context = context;
    c.one_pass = one_pass;
    return c;
  };
  constexpr const char* two = "parallel.expert=2 experts.number=5";
  constexpr const char* limited = "parallel.expert=2 experts.number=5 experts.capacity=0.8";
  constexpr const char* rounds = "parallel.expert=2 experts.number=5 experts.rows=0.6";
  constexpr const char* latent =
      "parallel.expert=2 model.head_size=8 model.key_value_rank=12 model.query_rank=18 "
      "model.rotary_size=4 model.value_size=6 experts.number=6 experts.active=2 "
      "experts.feed_forward=24 experts.groups=3 experts.active_groups=2 experts.first_layer=1";
  return {
      {1, 1, 2, with("1f1b", 1, "none", none, "adamw", Family::mixtral, "fp64", two)},
      {1, 1, 2, with("1f1b", 1, "full", optimizer, "lamb", Family::gpt_oss, "bf16", two)},
      {1, 1, 2, with("1f1b", 1, "selective", weights, "adamw", Family::mixtral, "bf16", two)},
      {1, 1, 2, with("1f1b", 1, "none", gradients, "adamw", Family::mixtral, "fp64", two, 1, true)},
      {1, 1, 2, with("1f1b", 1, "none", optimizer, "adamw", Family::mixtral, "fp64", two, 2)},
      {1, 1, 2, with("1f1b", 1, "none", optimizer, "adamw", Family::mixtral, "fp64", limited, 2)},
      {1, 1, 2, with("1f1b", 1, "full", weights, "adamw", Family::mixtral, "bf16", rounds)},
      {1, 1, 2,
       with("1f1b", 1, "none", none, "adamw", Family::mixtral, "fp64",
            "parallel.expert=2 experts.number=5 experts.z_weight=0.1 data.packing=documents")},
      {1, 1, 3,
       with("1f1b", 1, "none", optimizer, "adamw", Family::mixtral, "fp32",
            "parallel.expert=3 experts.number=5")},
      {1, 1, 4,
       with("1f1b", 1, "selective", weights, "lamb", Family::mixtral, "fp64",
            "parallel.expert=4 experts.number=5")},
      {1, 1, 4,
       with("1f1b", 1, "none", optimizer, "adamw", Family::mixtral, "fp64",
            "parallel.expert=2 experts.number=5 parallel.shard_group=2")},
      {1, 1, 2, with("1f1b", 1, "none", none, "muon", Family::mixtral, "fp64", two)},
      {1, 1, 2, with("1f1b", 1, "none", weights, "muon", Family::mixtral, "bf16", two)},
      {1, 1, 2, with("1f1b", 1, "none", none, "adafactor", Family::mixtral, "fp64", two)},
      {1, 1, 2, with("1f1b", 1, "none", optimizer, "adafactor", Family::mixtral, "bf16", two)},
      {1, 1, 4,
       with("1f1b", 1, "none", optimizer, "muon", Family::mixtral, "fp64",
            "parallel.expert=2 experts.number=5 parallel.shard_group=2")},
      {2, 1, 2,  // as many matrices for each rank
       with("1f1b", 1, "none", optimizer, "muon", Family::mixtral, "bf16",
            "model.layers=4 parallel.expert=2 experts.number=5")},
      {2, 1, 2, with("1f1b", 1, "none", none, "adafactor", Family::mixtral, "fp64", two)},
      {2, 1, 2, with("1f1b", 1, "none", weights, "adamw", Family::mixtral, "bf16", two)},
      {1, 2, 2, with("zb-h1", 1, "full", optimizer, "adamw", Family::deepseek_v3, "fp64", latent)},
      {1, 2, 2, with("2bw", 1, "none", none, "adamw", Family::mixtral, "bf16", two)}};
}

class Plan : public ::testing::Test {
 protected:
  /// The tensor and pipeline sizes of 2 to 4 ranks, and the case of plan_cases(): all in the soak
  /// test; else cases that run on every layout, and such that each pair of options is covered, a
  /// schedule's on several stages, a division's of the state with several replicas.
  struct PlannedRun {
    int ranks;
    int tensor;
    int pipeline;
    std::size_t number;  ///< of the case
  };
  static const std::vector<PlannedRun>& planned_runs() {
    static const std::vector<PlannedRun> chosen = [] {
      const std::vector<PlanCase> cases = plan_cases();
      std::vector<PlannedRun> all;
      std::vector<Combination> combinations;
      for (const int ranks : {2, 3, 4})
        for (int tensor = 1; tensor <= ranks; ++tensor)
          for (int pipeline = 1; pipeline <= ranks; ++pipeline)
            for (std::size_t i = 0; i < cases.size() && ranks % (tensor * pipeline) == 0; ++i) {
              const PlanCase& c = cases[i];
              const int data = ranks / (tensor * pipeline);
              const auto number = [](const std::string& word) {
                return static_cast<std::int64_t>(std::hash<std::string>{}(word));
              };
              all.push_back({ranks, tensor, pipeline, i});
              combinations.push_back(
                  {{tensor, pipeline, data, pipeline > 1 ? number(text(c.schedule, c.chunks)) : 0,
                    tensor > 1 ? 1 + c.sequence_parallel : 0, c.tied, number(c.recompute),
                    data > 1 ? 1 + static_cast<int>(c.shard) : 0, number(c.optimizer),
                    number(text(name_of(c.family), c.key_value_heads)), number(c.compute),
                    static_cast<int>(c.offload), number(c.property), c.fp8},
                   ranks});
            }
      if (std::getenv("TRIREME_ALL_LAYOUTS") != nullptr) return all;
      const std::vector<bool> picked = cover_pairs(combinations);
      std::vector<PlannedRun> some;
      for (std::size_t i = 0; i < all.size(); ++i)
        if (picked[i] || all[i].number < cases_on_every_layout) some.push_back(all[i]);
      return some;
    }();
    return chosen;
  }

  /// Calls `body` with the layouts of these ranks. One rank has every case.
  void for_layouts(const std::function<void(const deck::Config&, Rig&)>& body) {
    using enum Sharding;
    const int ranks = runtime().ranks();
    const std::vector<PlanCase> cases = plan_cases();
    if (ranks == 1)
      for (const PlanCase& c : cases) with_layout(1, 1, c, body);
    for (const PlannedRun& run : planned_runs())
      if (run.ranks == ranks) with_layout(run.tensor, run.pipeline, cases[run.number], body);
    for (PlanCase c :
         {PlanCase{"1f1b", 1, true, true, "none", gradients},
          PlanCase{"1f1b", 1, true, true, "none", weights},
          PlanCase{"gpipe", 1, false, false, "full", weights, "lamb", Family::llama, 1, "bf16"},
          PlanCase{"1f1b", 1, true, true, "none", weights, "adamw", Family::qwen3, 2, "fp64",
                   Offload::none, "model.head_size=8"},
          PlanCase{"1f1b", 1, false, true, "none", weights, "adamw", Family::bert}})
      for (const int tensor : {1, 2})
        for (const int context : {1, 2}) {
          if (ranks % (tensor * context) != 0) continue;
          c.one_pass = true;
          c.context = context;
          with_layout(tensor, 1, c, body);
        }
    for (const auto& [tensor, pipeline, expert, c] : expert_cases())
      if (ranks % (tensor * pipeline * expert) == 0) with_layout(tensor, pipeline, c, body);
    for (PlanCase c :
         {PlanCase{"1f1b", 1, true, true, "none", optimizer, "lamb", Family::gpt, 3, "bf16"},
          PlanCase{"1f1b", 1, true, true, "none", gradients},
          PlanCase{"gpipe", 1, false, false, "full", weights, "adamw", Family::llama, 1, "bf16"},
          PlanCase{"1f1b", 1, true, true, "selective", weights}})
      for (const int context : {1, 2}) {
        if (ranks != 4) continue;
        c.context = context;
        c.one_pass = c.shard != optimizer;
        c.property = "parallel.shard_group=2";
        with_layout(1, 1, c, body);
      }
    const auto with_muon = [&](int tensor, int pipeline, PlanCase c) {
      c.optimizer = "muon";
      c.property = "model.layers=4";  // as many matrices for each rank
      if (ranks != 3 && ranks % (tensor * pipeline) == 0) with_layout(tensor, pipeline, c, body);
    };
    with_muon(1, 2, {"1f1b", 1, true, true});
    with_muon(2, 1, {"zb-h1", 1, true, true, "none", optimizer, "muon", Family::llama, 2, "bf16"});
    with_muon(1, 1, {"1f1b", 1, true, false, "none", weights, "muon", Family::llama, 1, "fp32"});
    const auto with_adafactor = [&](int tensor, int pipeline, PlanCase c) {
      c.optimizer = "adafactor";
      if (ranks % (tensor * pipeline) == 0) with_layout(tensor, pipeline, c, body);
    };
    with_adafactor(1, 1, {"1f1b", 1, true, true});
    with_adafactor(1, 2, {"1f1b", 1, true, true});
    with_adafactor(2, 1, {"zb-h1", 1, true, true, "none", optimizer, "", Family::llama, 2, "bf16"});
    with_adafactor(1, 1, {"1f1b", 1, true, false, "none", weights, "", Family::llama, 1, "fp32"});
    for (const char* kind : {"adamw", "lamb", "muon", "adafactor"})
      for (const char* compute : {"fp32", "bf16"})
        for (const Sharding shard : {none, optimizer}) {
          PlanCase c{"1f1b", 1, true, true, "none", shard, kind, Family::llama, 2, compute};
          c.property = "model.layers=4 optimizer.moments=bf16";
          if (ranks != 3 && ranks % 2 == 0) with_layout(2, 1, c, body);
        }
    if (ranks == 2)
      with_layout(2, 1,
                  {"1f1b", 1, true, true, "none", none, "muon", Family::deepseek_v3, 6, "fp64",
                   Offload::none, latent_attention},
                  body);
    PlanCase noise{"1f1b", 1, true, true, "none", optimizer};
    noise.property = "run.gradient_noise_scale=true";
    for (const int tensor : {1, 2})
      if (ranks % tensor == 0) with_layout(tensor, 1, noise, body);
    for (PlanCase c :
         {PlanCase{"1f1b", 1, true, true, "none", optimizer},
          PlanCase{"zb-h1", 1, false, false, "full", none, "lamb", Family::llama, 1, "bf16"},
          PlanCase{"interleaved", 2, true, true, "selective", optimizer, "adamw", Family::bert},
          PlanCase{"1f1b", 1, false, false, "none", optimizer, "adamw", Family::mistral, 3, "fp32",
                   Offload::activations, "model.window=17"}})
      for (const int context : {2, 3, 4})
        for (const int tensor : {1, 2})
          for (const int pipeline : {1, 2}) {
            if (ranks % (context * tensor * pipeline) != 0) continue;
            c.context = context;
            with_layout(tensor, pipeline, c, body);
          }
  }

  void with_layout(int tensor, int pipeline, const PlanCase& c,
                   const std::function<void(const deck::Config&, Rig&)>& body) {
    const int ranks = runtime().ranks();
    const bool groups = deck::preset(c.family).positions == Positions::rotary;
    std::vector<std::string> overrides{
        text("model.family=", name_of(c.family)),
        text("model.key_value_heads=", groups ? c.key_value_heads : 6),
        text("model.vocabulary=", c.family == Family::bert ? 261 : 257),
        "model.layers=5",
        "model.heads=6",
        "model.sequence=23",
        text("model.tied_embeddings=", c.tied ? "true" : "false"),
        text("parallel.tensor=", tensor),
        text("parallel.pipeline=", pipeline),
        text("parallel.context=", c.context),
        text("parallel.schedule=", c.schedule),
        text("parallel.recompute=", c.recompute),
        text("parallel.shard=", name_of(c.shard)),
        text("precision.compute=", c.compute),
        text("parallel.chunks=", c.chunks),
        text("optimizer.kind=", c.optimizer),
        text("parallel.sequence_parallel=", c.sequence_parallel ? "true" : "false"),
        "parallel.bucket_bytes=20000"};
    for (const std::string& key : keys_of(c.property)) overrides.push_back(key);
    if (c.one_pass)
      overrides.push_back(
          text("batch.global=", ranks / (tensor * pipeline * static_cast<int>(c.context))));
    if (c.fp8)
      for (const char* set :
           {"precision.products=fp8", "precision.fp8_history=5", "model.hidden=48",
            "model.head_size=16", "model.feed_forward=192", "model.sequence=64"})
        overrides.push_back(set);
    deck::Config config = small_config(ranks == 3 ? 6 : 8, 1, ranks, overrides);
    config.parallel.offload = c.offload;
    SCOPED_TRACE(text("tensor ", tensor, ", pipeline ", pipeline, ", context ", c.context, ", ",
                      c.schedule, ", ", c.recompute, ", ", c.optimizer, ", ", c.compute, ", ",
                      name_of(c.family)));
    Rig rig(config, tokens_, runtime().world(), {}, machine_);
    body(config, rig);
  }

  /// The plan of this rank, whose tensor rank may be one that plan_ranks leaves out.
  plan::RankPlan plan_of(const deck::Config& config, Rig& rig) {
    const auto architecture = architecture::describe(config.model);
    const auto at = rig.grid().coordinates();
    const auto shard = architecture::make_shard(architecture, config.parallel, at);
    plan::RankPlan mine;
    for (const auto& rank :
         plan::plan_ranks(config, architecture,
                          plan::training_needs(plan::step_programs(config, machine_)), machine_))
      if (rank.pipeline == at[Axis::pipeline]) mine = rank;
    mine.memory = plan::training_memory(config, architecture, shard, mine.needs, machine_);
    mine.traffic =
        plan::step_traffic(config, architecture, shard, mine.needs.split_backward, machine_);
    return mine;
  }

  /// Planned bytes are those allocated.
  void expect_bytes(const deck::Config& config, Rig& rig) {
    const auto planned = plan_of(config, rig).memory;
    const auto allocated = rig.engine->memory();
    ASSERT_EQ(planned.size(), allocated.size());
    for (std::size_t i = 0; i < planned.size(); ++i) {
      EXPECT_EQ(planned[i].what, allocated[i].what);
      EXPECT_EQ(planned[i].on_host, allocated[i].on_host);
      EXPECT_EQ(planned[i].bytes, allocated[i].bytes) << planned[i].what;
    }
  }

  /// The planned copy of a checkpoint is that of the replica that writes most.
  void expect_copy(const deck::Config& config, Rig& rig) {
    deck::Config saving = config;
    saving.checkpoint.every = 1;
    Bytes bytes = 0;
    for (const auto& slice : rig.engine->share()) bytes += architecture::saved_bytes(slice.bytes());
    // The plan is that of the replicas with the same experts.
    grid::Communicator& same = rig.grid().with_same_experts(
        rig.grid().replicas(), static_cast<int>(config.parallel.expert));
    const auto most =
        same.all_reduce<std::int64_t>(bytes, grid::Reduction::maximum, "bytes of a share");
    const auto architecture = architecture::describe(config.model);
    const auto at = rig.grid().coordinates();
    const auto shard = architecture::make_shard(architecture, config.parallel, at);
    EXPECT_EQ(most, plan::checkpoint_copy_bytes(saving, architecture, shard, machine_));
    saving.checkpoint.asynchronous = false;
    EXPECT_EQ(plan::checkpoint_copy_bytes(saving, architecture, shard, machine_), 0);
  }

  /// Planned messages are those sent.
  void expect_messages(const deck::Config& config, Rig& rig) {
    grid::Grid& grid = rig.grid();
    std::multimap<std::string, grid::Communicator*> axes{
        {"tensor", &grid.communicator(Axis::tensor)},
        {"pipeline", &grid.communicator(Axis::pipeline)},
        {"context", &grid.communicator(Axis::context)},
        {config.parallel.context > 1 ? "replicas" : "data", &grid.replicas()},
        {"tied", &grid.embedding()},
        {"model", &grid.model()}};
    if (config.parallel.shares_vocabulary())
      for (const char* name : {"look-ups", "outputs", "logits", "look-ups' gradients"})
        axes.emplace("vocabulary", &grid.another(Axis::pipeline, name));
    if (config.parallel.shard_group > 0)
      axes.emplace("shard group", &grid.shard_group(static_cast<int>(config.parallel.shard_group)));
    for (const auto& [name, part] : grid.parts_of_tensor_axis()) axes.emplace("shared", part.get());
    if (const auto expert = static_cast<int>(config.parallel.expert); expert > 1) {
      axes.emplace("experts", &grid.experts(expert));
      axes.emplace("same experts", &grid.with_same_experts(grid.replicas(), expert));
      if (config.parallel.shard_group > 0)
        axes.emplace("shard group of experts",
                     &grid.with_same_experts(
                         grid.shard_group(static_cast<int>(config.parallel.shard_group)), expert));
    }
    rig.engine->train_step(1, rig.samples);
    for (const auto& [name, communicator] : axes) communicator->reset_traffic();
    rig.engine->train_step(2, rig.samples);
    std::map<std::string, grid::Traffic> planned;
    for (const auto& row : plan::per_axis(plan_of(config, rig).traffic))
      planned[row.axis] = {row.operations, row.bytes};
    std::map<std::string, grid::Traffic> sent;
    for (const auto& [name, communicator] : axes) {
      sent[name].operations += communicator->traffic().operations;
      sent[name].bytes += communicator->traffic().bytes;
    }
    for (const char* name :
         {"tensor", "context", "vocabulary", "pipeline", "shared", "data", "replicas",
          "shard group", "same experts", "shard group of experts", "tied", "model"}) {
      EXPECT_EQ(sent[name].operations, planned[name].operations) << name;
      EXPECT_EQ(sent[name].bytes, planned[name].bytes) << name;
    }
    // The bytes of exchanges depend on the choices of tokens: at most, and more than a quarter.
    EXPECT_EQ(sent["experts"].operations, planned["experts"].operations);
    EXPECT_LE(sent["experts"].bytes, planned["experts"].bytes);
    EXPECT_GE(sent["experts"].bytes, planned["experts"].bytes / 4);
  }

  const plan::Machine machine_ = with_own_memory();
  TemporaryFolder folder_;
  data::TokenFile tokens_{write_tokens(folder_, 20000)};
};

TEST_F(Plan, PlannedBytesAndMessagesMatchARun) {
  for_layouts([&](const deck::Config& config, Rig& rig) {
    expect_bytes(config, rig);
    expect_copy(config, rig);
    expect_messages(config, rig);
  });
}

/// Workers in turn on each rank, and workers of several ranks. Messages of the ranks of the first
/// worker: others have smaller parts of what they sum.
TEST_F(Plan, PlannedLocalTrainingMatchesARun) {
  const int ranks = runtime().ranks();
  for (const std::vector<std::string>& keys :
       {std::vector<std::string>{text("local.workers=", 2 * ranks), "local.inner_steps=2"},
        {text("local.workers=", ranks), "local.inner_steps=4", "local.fragments=2", "local.delay=1",
         "local.differences=bf16", "precision.compute=bf16"},
        {text("local.workers=", ranks % 2 == 0 ? 2 : 1), "local.inner_steps=3",
         "parallel.shard=weights", "parallel.bucket_bytes=20000", "local.outer_momentum=0"},
        {text("local.workers=", ranks), "local.inner_steps=2", "optimizer.kind=muon",
         text("parallel.tensor=", ranks % 2 == 0 ? 2 : 1), "parallel.offload=optimizer"}}) {
    SCOPED_TRACE(join(keys, ", "));
    const deck::Config config = small_config(24, 1, ranks, keys);
    if (config.parallel.workers == 1) continue;
    const auto groups = static_cast<int>(config.parallel.worker_groups());
    Rig rig(config, tokens_, runtime().world(), {}, machine_);
    expect_bytes(config, rig);
    grid::Communicator& across = rig.grid().across_parts(groups);
    const auto steps = config.local.inner_steps;
    rig.run(1, steps);
    across.reset_traffic();
    rig.run(steps + 1, 2 * steps);
    const auto architecture = architecture::describe(config.model);
    const auto shard =
        architecture::make_shard(architecture, config.parallel, rig.grid().coordinates());
    const auto rows = plan::outer_traffic(config, architecture, shard, machine_);
    EXPECT_EQ(rows.empty(), groups == 1);
    if (across.rank() == 0 && groups > 1 && !config.parallel.divides_state()) {
      EXPECT_EQ(across.traffic(grid::Verb::send),
                (grid::Traffic{rows.front().operations, rows.front().bytes}));
      EXPECT_EQ(across.traffic(grid::Verb::all_gather),
                (grid::Traffic{rows.back().operations, rows.back().bytes}));
    }
    // Also between outer steps, when workers have their own weights.
    for (std::int64_t step = 2 * steps; step < 2 * steps + 2; ++step) {
      Bytes bytes = 0;
      for (const auto& slice : rig.engine->share())
        bytes += architecture::saved_bytes(slice.bytes());
      EXPECT_LE(bytes, plan::share_bytes(config, architecture, shard, machine_)) << step;
      rig.run(step + 1, step + 1);
    }
  }
}

}  // namespace
}  // namespace trireme::train
