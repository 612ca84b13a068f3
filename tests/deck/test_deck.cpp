#include <trireme/deck/deck.hpp>

#include <trireme/base/check.hpp>
#include <trireme/deck/table.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "deck/example.hpp"

namespace trireme::deck {
namespace {

TEST(Deck, MissingKeysTakeTheirDefaults) {
  const Config c = parse_deck(example, "a.toml").config;
  EXPECT_EQ(c.run.directory, "run");
  EXPECT_EQ(c.run.steps, 100);
  EXPECT_EQ(c.run.seed, 1);
  EXPECT_EQ(c.run.time_limit, 0);
  EXPECT_EQ(c.run.log_every, 10);
  EXPECT_EQ(c.model.family, Family::gpt);
  EXPECT_EQ(c.model.feed_forward, 160);
  EXPECT_EQ(c.model.vocabulary, 0);
  EXPECT_TRUE(c.model.tied_embeddings);
  EXPECT_EQ(c.parallel.data, 0);
  EXPECT_EQ(c.parallel.schedule, ScheduleKind::one_forward_one_backward);
  EXPECT_EQ(c.parallel.bucket_bytes, 16777216);
  EXPECT_EQ(c.precision.compute, DType::fp32);
  EXPECT_EQ(c.optimizer.learning_rate, 3e-4);
  EXPECT_EQ(c.optimizer.decay_steps, 100);
  EXPECT_EQ(c.optimizer.epsilon, 1e-8);
  EXPECT_EQ(c.data.tokenizer, "bytes");
  EXPECT_EQ(c.checkpoint.directory, "run/checkpoints");
  EXPECT_EQ(c.checkpoint.restart, "none");
}

TEST(Deck, DefaultsFollowOverrides) {
  const Config c =
      parse_deck(example, "a.toml", {"run.steps=7", "run.directory=out", "model.hidden=80"}).config;
  EXPECT_EQ(c.optimizer.decay_steps, 7);
  EXPECT_EQ(c.checkpoint.directory, "out/checkpoints");
  EXPECT_EQ(c.model.feed_forward, 320);
}

TEST(Deck, ReadsGivenValues) {
  const Config c = parse_deck(example +
                                  "tokenizer = 'words.json'\n"
                                  "[run]\ntime_limit = \"01:02:03\"\nsteps = 1_000\n"
                                  "[optimizer]\nclip_norm = 2\nlearning_rate = 1e-3\n"
                                  "[parallel]\nschedule = \"gpipe\"\n"
                                  "[precision]\ncompute = \"fp64\"\n",
                              "a.toml")
                       .config;
  EXPECT_EQ(c.data.tokenizer, "words.json");
  EXPECT_EQ(c.run.time_limit, 3723);
  EXPECT_EQ(c.run.steps, 1000);
  EXPECT_EQ(c.optimizer.clip_norm, 2.0);
  EXPECT_EQ(c.optimizer.learning_rate, 1e-3);
  EXPECT_EQ(c.parallel.schedule, ScheduleKind::gpipe);
  EXPECT_EQ(c.precision.compute, DType::fp64);
}

TEST(Deck, ParsesOverridesByTheTypeOfTheKey) {
  const Config c = parse_deck(example, "a.toml",
                              {"parallel.schedule=gpipe", "run.time_limit=100:00:01",
                               "model.tied_embeddings=false", "run.steps=2_000", "run.seed=5",
                               "run.seed=6", "optimizer.learning_rate=1", "data.validation=a=b.h5",
                               "run.directory=\"two words\"", "optimizer.beta1=5e-1"})
                       .config;
  EXPECT_EQ(c.parallel.schedule, ScheduleKind::gpipe);
  EXPECT_EQ(c.run.time_limit, 360001);
  EXPECT_FALSE(c.model.tied_embeddings);
  EXPECT_EQ(c.run.steps, 2000);
  EXPECT_EQ(c.run.seed, 6) << "the last one wins";
  EXPECT_EQ(c.optimizer.learning_rate, 1.0);
  EXPECT_EQ(c.data.validation, "a=b.h5");
  EXPECT_EQ(c.run.directory, "two words");
  EXPECT_EQ(c.optimizer.beta1, 0.5);
}

TEST(Deck, RecordsTheOriginOfEachValue) {
  const Deck deck = parse_deck(example, "inputs/a.toml", {"run.steps=5"});
  EXPECT_EQ(deck.where("model", "heads"), "inputs/a.toml:4");
  EXPECT_EQ(deck.where("run", "steps"), "command line");
  EXPECT_EQ(deck.where("run", "seed"), "default");
  EXPECT_EQ(deck.cite("model", "heads"), "[model] heads = 4 (inputs/a.toml:4)");
  EXPECT_THROW(deck.where("model", "head"), Error);
}

/// Any value that the key accepts, chosen by `random`.
Value some_value(const Key& key, std::mt19937_64& random) {
  const double share = static_cast<double>(random() >> 11) / 9007199254740992.0;
  switch (key.type) {
    case KeyType::string:
    case KeyType::path:
      return std::string("x \"\\é' # [a] = ") + std::to_string(random() % 1000);
    case KeyType::integer:
    case KeyType::bytes: {
      const auto span = static_cast<std::uint64_t>(key.range.most - key.range.least);
      return key.range.least + static_cast<std::int64_t>(random() % span);
    }
    case KeyType::number:
      return std::isinf(key.range.high)
                 ? share * std::pow(10.0, static_cast<double>(random() % 600) - 300)
                 : key.range.high * share;
    case KeyType::boolean:
      return random() % 2 == 0;
    case KeyType::duration:
      return static_cast<double>(random() % 3600000);
    case KeyType::choice:
      return std::string(key.choices[random() % key.choices.size()]);
    case KeyType::list: {
      if (key.full_name() == "optimizer.rate_factors")
        return Words{std::to_string(1 + random() % 1000) + "e-2 layers.0-3", "2.5 *.*.\"\\é"};
      if (key.choices.empty()) return Words{"layers.0-3 \"\\é", std::to_string(random() % 1000)};
      return Words(random() % 3, std::string(key.choices[random() % key.choices.size()]));
    }
    case KeyType::integers:
      return Integers(random() % 3, static_cast<std::int64_t>(random() % 65536));
  }
  return {};
}

TEST(Deck, ResolvedDeckReadsBackToTheSameConfig) {
  std::mt19937_64 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    Deck deck = parse_deck(example, "a.toml");
    for (const Key& key : keys()) key.store(deck.config, some_value(key, random));
    deck.config.model.adapter.kind = AdapterKind::none;  // targets must fit the model
    ParallelConfig& p = deck.config.parallel;
    p.tensor = p.context = p.pipeline = p.expert = 1;
    p.chunks = schedule::schedule_of(p.schedule).least_chunks;
    p.placement = StagePlacement::automatic;
    p.order = random() % 2 == 0 ? "" : "data, tensor";
    if (p.schedule == ScheduleKind::automatic) p.recompute = Recompute::none;
    if (p.schedule != ScheduleKind::file) p.program.clear();
    p.timeline.clear();
    if (p.schedule == ScheduleKind::file) p.program += "x";
    p.layout = LayoutMode::given;  // else keys without a place are open
    p.share_devices = p.share_devices && p.transport != TransportKind::nccl;
    if (p.shard > Sharding::optimizer) deck.config.run.audit_every = 0;
    p.strategy = DataStrategy::all_reduce;  // servers suit few of the other keys
    p.servers = 1;
    p.staleness = 0;
    p.updates = ServerUpdates::step;
    p.replay.clear();
    ModelConfig& m = deck.config.model;
    for (auto* size : {&m.layers, &m.heads, &m.feed_forward, &m.sequence, &deck.config.batch.micro})
      *size = *size % 500 + 1;  // so that their product can be counted
    if (!p.partition.empty()) {
      p.partition.assign(static_cast<std::size_t>(p.chunks), 0);
      p.partition.back() = m.layers;
    }
    m.hidden = 2 * m.heads * (m.hidden % 5 + 1);
    m.explicit_head_size = 2 * (m.explicit_head_size % 100);
    m.key_value_heads = m.heads;
    m.shared_layers %= m.layers + 1;
    m.rope_factor += 1;
    m.encoder = {};  // an encoder suits few of the other keys
    m.vision = {};
    if (m.predicts_spans() || m.reads_pairs()) m.objective = Objective::next_token;
    if (m.has_relative_positions()) m.positions = Positions::learned;
    ExpertsConfig& e = m.experts;
    e.number %= 30;
    e.active = e.active % std::max<std::int64_t>(1, e.number) + 1;
    e.feed_forward = e.feed_forward % 500 + 1;
    e.first_layer %= m.layers;
    e.shared_feed_forward %= 500;
    e.shared_gate = e.shared_gate && e.shared_feed_forward > 0;
    e.groups = e.active_groups = 1;
    if (e.number % 3 == 0 && e.number > 3 && e.active <= e.number / 3 * 2) e.groups = 3;
    if (e.groups == 3) e.active_groups = 2;
    if (e.score == ExpertScore::sigmoid) e.z_weight = 0;
    e.bias_rate = 0;
    if (e.keeps_load()) e.balance = ExpertBalance::sequence;
    e.split = e.split && deck.config.optimizer.kind != OptimizerKind::muon;
    if (!e.present()) e = {.feed_forward = m.feed_forward};
    if (e.present() && m.biases == Biases::all) m.biases = Biases::none;
    if (m.rope_scaling != RotaryScalingKind::none) {
      m.rope_scaling = RotaryScalingKind::linear;
      m.positions = Positions::rotary;
    }
    m.rope_mscale = m.rope_mscale_all = 0;  // they need yarn
    m.query_rank %= 1000;
    m.rotary_size = 2 * (m.rotary_size % (m.head_size() / 2 + 1));
    m.value_size %= m.head_size() + 1;
    if (m.positions != Positions::rotary || m.query_key_norm != QueryKeyNorm::none ||
        m.biases != Biases::none || m.window > 0 || deck.config.precision.products == Products::fp8)
      m.key_value_rank = 0;
    if (!m.has_latent_attention()) m.query_rank = m.rotary_size = m.value_size = 0;
    m.rope_interleaved = m.rope_interleaved && m.has_latent_attention();
    if (!m.causal()) m.window = 0;
    if (!m.causal()) m.objective = Objective::masked_token;
    if (m.norm != NormKind::rms) m.zero_centered_gains = false;
    if (m.window == 0) m.full_attention_every = 0;
    if (m.window == 0 || m.positions != Positions::rotary) m.window_rope_theta = 0;
    if (m.activation != Activation::clamped_swiglu) m.activation_limit = 7;
    if (m.predicts_masked_tokens()) m.logit_softcap = 0;
    if (m.predicts_masked_tokens()) m.packing = Packing::none;
    if (m.predicts_masked_tokens()) deck.config.run.prompts.clear();
    m.sequence += 4;  // two segments and three special tokens of bert's, each with an id
    m.vocabulary = std::min<std::int64_t>(m.vocabulary, 1 << 29) + 3;
    DataConfig& d = deck.config.data;
    d.class_token = d.mask_token = -1;
    d.separator_token = m.vocabulary - 3 - trial % 2;
    if (trial % 2 == 0) d.separator_token = -1;
    BatchConfig& b = deck.config.batch;
    b.ramp_start = b.micro;
    b.ramp_increment = b.micro * (b.ramp_increment % 9 + 1);
    b.global = b.ramp_start + b.ramp_increment * (b.global % 7);
    b.ramp_samples = std::max<std::int64_t>(1, b.ramp_samples);
    if (p.schedule == ScheduleKind::file) b.ramp_start = b.ramp_increment = b.ramp_samples = 0;
    OptimizerConfig& o = deck.config.optimizer;
    o.minimum_learning_rate = o.learning_rate / 3;
    o.warmup_steps = o.decay_steps / 2;
    o.cooldown_steps = o.schedule == LearningRateSchedule::warmup_stable_decay
                           ? o.decay_steps - o.warmup_steps
                           : 0;
    o.nesterov = o.nesterov && o.kind == OptimizerKind::sgd;
    if (deck.config.precision.compute == DType::fp64) o.moments = Moments::full;
    if (o.kind == OptimizerKind::adafactor) p.vocabulary = VocabularyPlacement::stage;
    deck.config.run.gradient_noise_scale = false;  // suits few of the batches above
    p.workers = 1;                                 // likewise
    PrecisionConfig& precision = deck.config.precision;
    precision.tf32 = precision.tf32 && precision.compute == DType::fp32;
    precision.products = Products::compute;  // fp8 suits few of the sizes above
    if (size_of(precision.compute) != 2 || deck.config.model.dropout > 0)
      precision.attention = AttentionKind::portable;
    if (p.schedule == ScheduleKind::two_bw) {
      p.offload = Offload::none;
      p.shard = std::min(p.shard, Sharding::gradients);
      m.shared_layers = deck.config.run.audit_every = 0;
    }
    if (!m.predicts_next_token() || m.norm_placement == NormPlacement::post ||
        m.shared_layers > 0 || m.adapter.present() || m.predicts > m.sequence ||
        p.vocabulary != VocabularyPlacement::stage)
      m.predicts = 1;
    if (m.modules() == 0) m.predict_weight = 0.3;
    if (!p.partition.empty()) p.partition.back() = m.all_layers();
    const std::string resolved = resolved_toml(deck);
    const Deck again = parse_deck(resolved, "resolved.toml");
    EXPECT_EQ(again.config, deck.config) << resolved;
    EXPECT_EQ(resolved_toml(again), resolved);
  }
}

TEST(Deck, ResolvedDeckNamesEveryKey) {
  const Deck again = parse_deck(resolved_toml(parse_deck(example, "a.toml")), "resolved.toml");
  for (const Key& key : keys())
    EXPECT_NE(again.where(key.section, key.name), "default") << key.full_name();
}

TEST(Deck, ResolvedDeckDependsOnEveryKey) {
  std::set<std::string> seen;
  Deck deck = parse_deck(example, "a.toml");
  seen.insert(resolved_toml(deck));
  std::mt19937_64 random(3);
  std::size_t changed = 0;
  for (const Key& key : keys()) {
    Deck other = deck;
    for (int draw = 0; draw < 100 && other.config == deck.config; ++draw)
      key.store(other.config, some_value(key, random));
    if (other.config == deck.config) continue;
    ++changed;
    EXPECT_TRUE(seen.insert(resolved_toml(other)).second) << key.full_name();
  }
  EXPECT_EQ(changed, keys().size());
}

}  // namespace
}  // namespace trireme::deck
