// Contradictions among the keys of the model, of adapters and of the precision.
#include <trireme/deck/model_checks.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>
#include <trireme/deck/checks.hpp>
#include <trireme/deck/layout.hpp>
#include <trireme/deck/table.hpp>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

namespace trireme::deck {

namespace {

/// The layers of a part that may have adapters.
struct AdaptedPart {
  std::string_view name;
  bool present;
  bool gated;
  bool crosses;  ///< whether the layers have cross-attention
};

/// Whether the layers of a part have a product. Shared experts are checked elsewhere.
bool has_product(const AdaptedPart& part, std::string_view product) {
  if (product.starts_with("cross_attention.")) return part.crosses;
  if (product.ends_with("gate_up")) return part.gated;
  return !product.ends_with("up") || !part.gated;
}

void add_part_mistakes(const Deck& deck, std::vector<std::string>& mistakes) {
  const auto report = [&](const auto&... parts) { mistakes.push_back(text(parts...)); };
  const ModelConfig& m = deck.config.model;
  const AdapterConfig& a = m.adapter;
  const std::string targets = deck.cite("adapter", "targets"),
                    parts = deck.cite("adapter", "parts");
  if (a.parts.empty()) report(parts, " names no part; choose parts = [\"layers\"]");
  std::vector<AdaptedPart> adapted;
  for (const AdaptedPart& part : {AdaptedPart{"layers", true, m.gated(), m.encoder.present()},
                                  {"encoder", m.encoder.present(), m.gated(), false},
                                  {"vision", m.vision.present(), false, false}}) {
    if (!a.adapts(part.name)) continue;
    if (std::ranges::count(a.parts, part.name) > 1)
      report(parts, " names ", part.name, " twice; name it once");
    if (part.present)
      adapted.push_back(part);
    else
      report(parts, " names ", part.name, ", but the deck has ", deck.cite(part.name, "layers"),
             "; set layers, or leave ", part.name, " out");
  }
  if (!mistakes.empty()) return;
  for (const std::string_view target : a.targets) {
    const auto has = [&](const AdaptedPart& part) { return has_product(part, target); };
    if (std::ranges::any_of(adapted, has)) continue;
    if (target.starts_with("cross_attention."))
      report(targets, " names ", target, ", but ",
             m.encoder.present() ? parts : deck.cite("encoder", "layers"),
             m.encoder.present() ? " leave out the layers that have it; add layers to parts"
                                 : "; set layers",
             ", or choose products of attention");
    else
      report(targets, " names ", target, ", which ",
             adapted.front().name == "vision" ? "an encoder of images"
                                              : "a model with " + deck.cite("model", "activation"),
             " does not have; choose ",
             target.substr(0, target.find("gate_up")) == target
                 ? text(target.substr(0, target.size() - 2), "gate_up")
                 : text(target.substr(0, target.size() - 7), "up"));
  }
  if (!mistakes.empty()) return;
  for (const AdaptedPart& part : adapted)
    if (!a.targets.empty() && std::ranges::none_of(a.targets, [&](const std::string& target) {
          return has_product(part, target);
        }))
      report(parts, " names ", part.name, ", which has none of the products in ", targets,
             "; leave it out, or add ", part.gated ? "feed_forward.gate_up" : "feed_forward.up");
}

}  // namespace

std::vector<std::string> adapter_mistakes(const Deck& deck) {
  std::vector<std::string> mistakes;
  const auto report = [&](const auto&... parts) { mistakes.push_back(text(parts...)); };
  const ModelConfig& m = deck.config.model;
  const AdapterConfig& a = m.adapter;
  if (!a.present()) return mistakes;
  const std::string targets = deck.cite("adapter", "targets");
  if (a.targets.empty())
    report(targets, " names no product; choose some, such as [\"attention.query\"]");
  add_part_mistakes(deck, mistakes);
  for (const std::string_view target : a.targets)
    if (target.starts_with("experts.") && !m.experts.shares()) {
      report(targets, " names ", target, ", but the deck has ",
             deck.cite("experts", "shared_feed_forward"),
             "; set shared_feed_forward, or choose other products");
      break;
    }
  if (a.targets_product("attention.query_key_value") &&
      (a.targets_product("attention.query") || a.targets_product("attention.key_value")))
    report(targets,
           " names queries, or keys and values, twice; choose attention.query_key_value, or "
           "attention.query and attention.key_value");
  for (const std::string& target : a.targets)
    if (std::ranges::count(a.targets, target) > 1) {
      report(targets, " names ", target, " twice; name it once");
      break;
    }
  return mistakes;
}

std::vector<std::string> expert_mistakes(const Deck& deck) {
  std::vector<std::string> mistakes;
  const auto report = [&](const auto&... parts) { mistakes.push_back(text(parts...)); };
  const Config& c = deck.config;
  const ExpertsConfig& e = c.model.experts;
  const std::string number = deck.cite("experts", "number");
  if (!e.present()) {
    // A resolved deck has all keys, with these values.
    Config unused = c;
    unused.model.experts = {.feed_forward = c.model.feed_forward};
    for (const Key& key : keys())
      if (key.section == "experts" && key.load(c) != key.load(unused))
        report(deck.cite("experts", key.name), " has no effect with ", number,
               "; set number, or remove ", key.name);
    return mistakes;
  }
  if (e.active > e.number)
    report(deck.cite("experts", "active"), " is larger than ", number, "; choose at most ",
           e.number);
  if (e.first_layer >= c.model.layers)
    report(deck.cite("experts", "first_layer"), ", counted from 0, is not less than ",
           deck.cite("model", "layers"), "; choose at most ", c.model.layers - 1);
  if (e.shared_gate && e.shared_feed_forward == 0)
    report(deck.cite("experts", "shared_gate"), " needs a shared expert, but the deck has ",
           deck.cite("experts", "shared_feed_forward"),
           "; choose shared_gate = false, or set shared_feed_forward");
  if (c.model.adapter.present() && c.model.only_experts())
    for (const std::string& target : c.model.adapter.targets)
      if (target.starts_with("feed_forward.")) {
        report(deck.cite("adapter", "targets"), " names ", target,
               ", which are experts; choose products of attention or shared experts");
        break;
      }
  if (e.number % e.groups != 0)
    report(deck.cite("experts", "groups"), " does not divide ", number, "; choose ",
           choices(divisors(e.number), e.groups));
  else if (e.groups > 1 && e.number / e.groups < 2)
    report(deck.cite("experts", "groups"),
           " leaves one expert in each group, but groups need two; ", "choose at most ",
           e.number / 2);
  if (e.active_groups > e.groups)
    report(deck.cite("experts", "active_groups"), " is larger than ",
           deck.cite("experts", "groups"), "; choose at most ", e.groups);
  else if (e.active <= e.number && e.number % e.groups == 0 &&
           e.active_groups * (e.number / e.groups) < e.active)
    report(deck.cite("experts", "active_groups"), " leaves ",
           e.active_groups * (e.number / e.groups), " experts, fewer than ",
           deck.cite("experts", "active"), "; choose more active_groups");
  if (e.score == ExpertScore::sigmoid && e.z_weight > 0)
    report(deck.cite("experts", "z_weight"), " needs score = \"softmax\", but the deck has ",
           deck.cite("experts", "score"), "; choose z_weight = 0.0");
  if (e.bias_rate > 0 && !e.choice_bias)
    report(deck.cite("experts", "bias_rate"), " changes a bias, but the deck has ",
           deck.cite("experts", "choice_bias"), "; choose choice_bias = true, or bias_rate = 0.0");
  if (e.counts_batch()) {
    const std::string counts = deck.cite("experts", e.bias_rate > 0 ? "bias_rate" : "balance");
    const std::string without = e.bias_rate > 0 ? "bias_rate = 0.0" : "balance = \"sequence\"";
    const auto excludes = [&](const char* section, const char* key, const char* why,
                              const char* remedy) {
      report(counts, " cannot be combined with ", deck.cite(section, key), ", ", why, "; choose ",
             remedy, ", or ", without);
    };
    if (e.number > norm_block)
      report(counts, " needs at most ", norm_block, " experts, but the deck has ", number,
             "; choose ", without);
    // Counts are exact in fp32. Layers that share arrays add their counts.
    constexpr double exact = 1 << 24;
    const std::int64_t shared = c.model.shared_layers;
    const std::int64_t layers = shared > 0 ? (c.model.layers + shared - 1) / shared : 1;
    if (static_cast<double>(c.batch.global) * static_cast<double>(c.model.sequence) *
            static_cast<double>(layers) >
        exact)
      report(counts, " counts the tokens of a global batch, at most 2^24, but ",
             deck.cite("batch", "global"), " · ", deck.cite("model", "sequence"),
             layers > 1
                 ? text(" · ", layers, " layers that share a ", e.bias_rate > 0 ? "bias" : "load")
                 : "",
             " are more; choose a smaller global, or ", without);
    if (c.parallel.workers > 1) excludes("local", "workers", "whose batches differ", "workers = 1");
    if (c.parallel.has_servers())
      excludes("parallel", "strategy", "whose workers do not wait for one another",
               "strategy = \"all_reduce\"");
  }
  const auto excludes = [&](const char* section, const char* key, const char* remedy) {
    report(number, " cannot be combined with ", deck.cite(section, key), "; choose ", remedy);
  };
  if (c.precision.products == Products::fp8)
    excludes("precision", "products", "products = \"compute\"");
  if (e.split && c.optimizer.kind == OptimizerKind::muon)
    report(deck.cite("experts", "split"), " cannot be combined with ",
           deck.cite("optimizer", "kind"),
           ", whose matrices of experts must be whole; choose split = false, or kind = \"adamw\"");
  return mistakes;
}

std::vector<std::string> encoder_mistakes(const Deck& deck) {
  std::vector<std::string> mistakes;
  const auto report = [&](const auto&... parts) { mistakes.push_back(text(parts...)); };
  const Config& c = deck.config;
  const ModelConfig& m = c.model;
  const EncoderConfig& e = m.encoder;
  const std::string layers = deck.cite("encoder", "layers");
  if (!e.present()) {
    Config unused = c;
    unused.model.encoder = {};
    for (const Key& key : keys())
      if (key.section == "encoder" && key.load(c) != key.load(unused))
        report(deck.cite("encoder", key.name), " has no effect with ", layers,
               "; set layers, or remove ", key.name);
    if (m.predicts_spans() || m.reads_pairs())
      report(deck.cite("model", "objective"), " needs an encoder, but the deck has ", layers,
             "; set layers, or choose objective = \"next_token\"");
    if (m.has_relative_positions())
      report(deck.cite("model", "positions"), " needs an encoder, but the deck has ", layers,
             "; set layers, or choose positions = \"rotary\"");
    return mistakes;
  }
  const auto needs = [&](const char* key, bool fits, const char* value) {
    if (!fits)
      report(layers, " needs ", key, " = ", value, ", but the deck has ", deck.cite("model", key),
             "; choose ", key, " = ", value, ", or layers = 0");
  };
  needs("objective", m.predicts_spans() || m.reads_pairs(),
        "\"corrupted_spans\" or \"sequence_to_sequence\"");
  needs("positions", m.has_relative_positions(), "\"relative\"");
  needs("norm_placement", m.norm_placement == NormPlacement::pre, "\"pre\"");
  needs("mask", m.causal(), "\"causal\"");
  needs("window", m.window == 0, "0");
  needs("attention_softcap", m.attention_softcap == 0, "0.0");
  needs("attention_sinks", !m.attention_sinks, "false");
  needs("key_value_rank", m.key_value_rank == 0, "0");
  needs("shared_layers", m.shared_layers == 0, "0");
  const auto excludes = [&](const char* section, const char* key, bool excluded,
                            const char* remedy) {
    if (excluded)
      report(layers, " cannot be combined with ", deck.cite(section, key), "; choose ", remedy);
  };
  const ParallelConfig& p = c.parallel;
  excludes("experts", "number", m.experts.present(), "number = 0");
  excludes("data", "packing", m.packs_documents() && !m.reads_pairs(),
           "packing = \"none\", or objective = \"sequence_to_sequence\"");
  excludes("parallel", "context", p.context > 1, "context = 1");
  excludes("parallel", "vocabulary", p.vocabulary != VocabularyPlacement::stage,
           "vocabulary = \"stage\"");
  excludes("parallel", "layout", p.layout == LayoutMode::automatic, "layout = \"given\"");
  excludes("parallel", "offload", p.offload == Offload::activations || p.offload == Offload::both,
           "offload = \"none\" or \"optimizer\"");
  excludes("precision", "products", c.precision.products == Products::fp8,
           "products = \"compute\"");
  if (m.reads_pairs()) {
    const EncoderConfig unused;
    for (const auto& [key, changed] :
         {std::pair{"noise", e.noise != unused.noise}, {"span", e.span != unused.span}})
      if (changed)
        report(deck.cite("encoder", key), " has no effect with ", deck.cite("model", "objective"),
               ", which corrupts no spans; remove ", key);
  }
  if (e.sequence == 0) {
    report(layers, " needs ", deck.cite("encoder", "sequence"), " to be ", m.reads_pairs() ? 1 : 3,
           " or more; set it to the number of tokens that the encoder reads");
  } else if (m.predicts_spans()) {
    try {
      const SpanLengths lengths = m.spans();
      const std::string given =
          text(e.sequence, " source tokens with noise ", e.noise, " and span ", e.span);
      if (lengths.source != e.sequence)
        report(deck.cite("encoder", "sequence"), ": no number of tokens of text gives ", given,
               "; choose ", lengths.source);
      else if (lengths.target != m.sequence)
        report(deck.cite("model", "sequence"), ", but ", given, " give ", lengths.target,
               "; choose sequence = ", lengths.target);
      if (m.vocabulary > 0 && m.vocabulary < added_span_ids(c))
        report(deck.cite("model", "vocabulary"), " is less than ", added_span_ids(c),
               " sentinels and other special tokens; choose a larger vocabulary");
    } catch (const UsageError& error) {
      report(deck.cite("encoder", "sequence"), ": ", error.what());
    }
  }
  return mistakes.empty() && m.vocabulary > 0 ? mistakes_of_special_tokens(deck) : mistakes;
}

std::vector<std::string> module_mistakes(const Deck& deck) {
  std::vector<std::string> mistakes;
  const auto report = [&](const auto&... parts) { mistakes.push_back(text(parts...)); };
  const Config& c = deck.config;
  const ModelConfig& m = c.model;
  const std::string predicts = deck.cite("model", "predicts");
  if (m.modules() == 0) {
    if (m.predict_weight != ModelConfig().predict_weight)
      report(deck.cite("model", "predict_weight"), " has no effect with ", predicts,
             "; choose predicts = 2, or remove predict_weight");
    return mistakes;
  }
  if (!m.predicts_next_token())
    report(predicts, " needs objective = \"next_token\", but the deck has ",
           deck.cite("model", "objective"), "; choose predicts = 1");
  if (m.predicts > m.sequence)
    report(predicts, " is more than ", deck.cite("model", "sequence"), "; choose at most ",
           m.sequence);
  const auto excludes = [&](bool excluded, const char* section, const char* key,
                            const char* remedy) {
    if (excluded)
      report(predicts, " cannot be combined with ", deck.cite(section, key), "; choose ", remedy,
             ", or predicts = 1");
  };
  excludes(m.norm_placement == NormPlacement::post, "model", "norm_placement",
           "norm_placement = \"pre\"");
  excludes(m.shared_layers > 0, "model", "shared_layers", "shared_layers = 0");
  excludes(m.adapter.present(), "adapter", "kind", "kind = \"none\"");
  excludes(c.parallel.vocabulary != VocabularyPlacement::stage, "parallel", "vocabulary",
           "vocabulary = \"stage\"");
  excludes(c.precision.products == Products::fp8, "precision", "products",
           "products = \"compute\"");
  return mistakes;
}

std::vector<std::string> latent_mistakes(const Deck& deck) {
  std::vector<std::string> mistakes;
  const Config& c = deck.config;
  const ModelConfig& m = c.model;
  const auto report = [&](const auto&... parts) { mistakes.push_back(text(parts...)); };
  const auto cite = [&](const char* key) { return deck.cite("model", key); };
  const std::string rank = cite("key_value_rank");
  if (!m.has_latent_attention()) {
    for (const auto& [key, set] : {std::pair{"query_rank", m.query_rank > 0},
                                   {"rotary_size", m.rotary_size > 0},
                                   {"value_size", m.value_size > 0},
                                   {"rope_interleaved", m.rope_interleaved}})
      if (set)
        report(cite(key), " has no effect with ", rank, "; set key_value_rank, or choose ", key,
               " = ", std::string_view(key) == "rope_interleaved" ? "false" : "0");
    return mistakes;
  }
  const auto smaller = [&](const char* key, std::int64_t size) {
    if (size > m.head_size())
      report(cite(key), " is larger than the ", m.head_size(),
             " columns of a head; choose at most ", m.head_size(), ", or set head_size");
  };
  smaller("rotary_size", m.rotary_columns());
  smaller("value_size", m.value_columns());
  if (m.rotary_columns() % 2 != 0)
    report(cite("rotary_size"), " is odd, and rotary positions need an even number; choose ",
           m.rotary_columns() + 1);
  const auto needs = [&](const char* key, bool fits, const char* value) {
    if (!fits)
      report(rank, " needs ", key, " = ", value, ", but the deck has ", cite(key), "; choose ", key,
             " = ", value, ", or key_value_rank = 0");
  };
  needs("key_value_heads", m.key_value_heads == m.heads, text(m.heads).c_str());
  needs("positions", m.positions == Positions::rotary, "\"rotary\"");
  needs("query_key_norm", m.query_key_norm == QueryKeyNorm::none, "\"none\"");
  needs("biases", m.biases == Biases::none, "\"none\"");
  needs("window", m.window == 0, "0");
  const auto excludes = [&](const char* section, const char* key, const char* remedy) {
    report(rank, " cannot be combined with ", deck.cite(section, key), "; choose ", remedy);
  };
  if (m.adapter.present()) excludes("adapter", "kind", "kind = \"none\"");
  if (c.precision.products == Products::fp8)
    excludes("precision", "products", "products = \"compute\"");
  return mistakes;
}

std::vector<std::string> property_mistakes(const Deck& deck) {
  std::vector<std::string> mistakes;
  const ModelConfig& m = deck.config.model;
  const auto report = [&](const auto&... parts) { mistakes.push_back(text(parts...)); };
  const auto cite = [&](const char* key) { return deck.cite("model", key); };
  if (!m.causal() && !m.predicts_masked_tokens())
    report(cite("mask"), " lets each token see the token that ", cite("objective"),
           " predicts; choose mask = \"causal\", or objective = \"masked_token\"");
  if (!m.causal() && m.window > 0)
    report(cite("window"), " needs mask = \"causal\", but ", cite("mask"),
           "; choose window = 0, or mask = \"causal\"");
  if (m.packs_documents() && m.predicts_masked_tokens())
    report(deck.cite("data", "packing"), " needs objective = \"next_token\", but ",
           cite("objective"), " trains on pairs of segments; set packing = \"none\"");
  if (m.packs_documents() && !m.causal() && !m.predicts_masked_tokens())
    report(deck.cite("data", "packing"), " needs mask = \"causal\", but ", cite("mask"),
           "; choose packing = \"none\", or mask = \"causal\"");
  if (m.shared_layers > m.layers)
    report(cite("shared_layers"), " is more than ", cite("layers"), "; choose at most ", m.layers);

  // Reports `key` if it is used and the value of the key `other` does not fit `key`.
  const auto expect = [&](const char* key, bool used, const char* other, bool fits,
                          const char* needs, const char* none) {
    if (used && !fits)
      report(cite(key), " needs ", needs, ", but the deck has ", cite(other), "; choose ", key,
             " = ", none, ", or change ", other);
  };
  expect("zero_centered_gains", m.zero_centered_gains, "norm", m.norm == NormKind::rms,
         "norm = \"rms\"", "false");
  expect("full_attention_every", m.full_attention_every > 0, "window", m.window > 0, "a window",
         "0");
  expect("window_rope_theta", m.window_rope_theta > 0, "window", m.window > 0, "a window", "0");
  expect("window_rope_theta", m.window_rope_theta > 0, "positions",
         m.positions == Positions::rotary, "positions = \"rotary\"", "0");
  expect("activation_limit", m.activation_limit != ModelConfig().activation_limit, "activation",
         m.activation == Activation::clamped_swiglu, "activation = \"clamped_swiglu\"", "7.0");
  expect("logit_softcap", m.logit_softcap > 0, "objective", !m.predicts_masked_tokens(),
         "objective = \"next_token\"", "0");
  return mistakes;
}

namespace {

/// Divisor of the rows, columns and depth of every fp8 product on every tensor rank.
constexpr std::int64_t fp8_unit = 16;

/// Message about heads with an odd number of columns; "" if hidden / heads is not a whole number.
std::string odd_heads(const Deck& deck) {
  const ModelConfig& m = deck.config.model;
  if (m.explicit_head_size > 0)
    return text(deck.cite("model", "head_size"),
                " is odd, and rotary positions need an even number; choose ", m.head_size() + 1);
  if (m.hidden % m.heads != 0) return "";  // CrossCheck::model() reports it
  return text(deck.cite("model", "hidden"), " / ", deck.cite("model", "heads"),
              " is a head size of ", m.head_size(), ", and rotary positions need an even one; ",
              m.hidden % 2 == 0 ? text("choose ", choices(divisors(m.hidden / 2), m.heads),
                                       " heads, or set head_size")
                                : text("set an even head_size, or choose an even hidden"));
}

}  // namespace

std::vector<std::string> rotary_mistakes(const Deck& deck) {
  std::vector<std::string> mistakes;
  const ModelConfig& m = deck.config.model;
  if (m.positions == Positions::rotary && !m.has_latent_attention() && m.head_size() % 2 != 0)
    if (const std::string mistake = odd_heads(deck); !mistake.empty()) mistakes.push_back(mistake);
  if (m.rope_scaling == RotaryScalingKind::none) return mistakes;
  const auto report = [&](const auto&... parts) { mistakes.push_back(text(parts...)); };
  const std::string scaling = deck.cite("model", "rope_scaling");
  if (m.positions != Positions::rotary)
    report(scaling, " needs rotary positions, but the deck has ", deck.cite("model", "positions"),
           "; choose rope_scaling = \"none\", or positions = \"rotary\"");
  if (!deck.places.contains("model.rope_factor"))
    report(scaling, " needs rope_factor; set it to the factor by which sequences are longer than ",
           "in the earlier training");
  const bool yarn = m.rope_scaling == RotaryScalingKind::yarn;
  if (m.rope_scaling != RotaryScalingKind::linear && m.rope_original_sequence == 0)
    report(scaling,
           " needs rope_original_sequence; set it to the sequence of the earlier training");
  if (m.rope_scaling == RotaryScalingKind::dynamic && m.rotary_columns() <= 2)
    report(scaling, " needs more than 2 rotated columns of a head, but a head has ",
           m.rotary_columns(), "; choose fewer heads, or another rope_scaling");
  if (m.rope_scaling == RotaryScalingKind::llama3 &&
      m.rope_high_frequency_factor <= m.rope_low_frequency_factor)
    report(deck.cite("model", "rope_high_frequency_factor"), " is not above ",
           deck.cite("model", "rope_low_frequency_factor"), "; choose a larger one");
  if (yarn && m.rope_beta_fast < m.rope_beta_slow)
    report(deck.cite("model", "rope_beta_fast"), " is less than ",
           deck.cite("model", "rope_beta_slow"), "; choose a larger one");
  if (m.rope_mscale > 0 && m.rope_mscale_all == 0)
    report(deck.cite("model", "rope_mscale"), " needs rope_mscale_all; set it, or choose ",
           "rope_mscale = 0.0");
  if (m.rope_mscale_all > 0 && (!yarn || !m.has_latent_attention()))
    report(deck.cite("model", "rope_mscale_all"),
           " needs rope_scaling = \"yarn\" and latent attention, but the deck has ", scaling,
           " and ", deck.cite("model", "key_value_rank"), "; choose rope_mscale_all = 0.0");
  if (yarn && m.rope_theta <= 1)
    report(scaling, " needs rope_theta above 1, but the deck has ",
           deck.cite("model", "rope_theta"), "; choose a larger one");
  return mistakes;
}

std::vector<std::string> precision_mistakes(const Deck& deck) {
  std::vector<std::string> mistakes;
  const auto report = [&](const auto&... parts) { mistakes.push_back(text(parts...)); };
  const PrecisionConfig& p = deck.config.precision;
  const std::string compute = deck.cite("precision", "compute");
  if (p.tf32 && p.compute != DType::fp32)
    report(deck.cite("precision", "tf32"), " applies to fp32, but the deck has ", compute,
           "; remove it, or choose compute = \"fp32\"");
  const std::string attention = deck.cite("precision", "attention");
  const bool cudnn = p.attention == AttentionKind::cudnn;
  if ((cudnn || p.attention == AttentionKind::tensor_cores) && size_of(p.compute) != 2)
    report(attention, " supports bf16 and fp16, not ", compute,
           "; choose attention = \"auto\", or compute = \"bf16\" or \"fp16\"");
  if (cudnn && deck.config.model.dropout > 0)
    report(attention, " draws dropout masks that depend on the layout, so it cannot be used with ",
           deck.cite("model", "dropout"), "; choose dropout = 0, or attention = \"auto\"");
  if (p.products == Products::fp8 && p.compute != DType::bf16)
    report(deck.cite("precision", "products"), " needs bf16, but the deck has ", compute,
           "; choose compute = \"bf16\", or products = \"compute\"");
  return mistakes;
}

namespace {

/// Whether every tensor rank has an equal part of the feed-forward, a multiple of fp8_unit.
bool splits(std::int64_t feed_forward, std::int64_t tensor) {
  return feed_forward % (fp8_unit * tensor) == 0;
}

/// "choose 32 or 48": the nearest multiples of `unit`.
std::string nearest_multiples(std::int64_t n, std::int64_t unit) {
  const std::int64_t below = n / unit * unit;
  return text("choose ", below > 0 ? text(below, " or ") : "", below + unit);
}

}  // namespace

bool fp8_fits(const Config& config, std::int64_t tensor, std::int64_t micro) {
  const ModelConfig& m = config.model;
  return config.precision.products != Products::fp8 ||
         (m.hidden % fp8_unit == 0 && m.head_size() % fp8_unit == 0 &&
          splits(m.feed_forward, tensor) && micro * m.sequence % fp8_unit == 0);
}

std::vector<std::string> fp8_mistakes(const Deck& deck) {
  std::vector<std::string> mistakes;
  const ModelConfig& m = deck.config.model;
  if (deck.config.precision.products != Products::fp8) return mistakes;
  const std::string needs = text(" not a multiple of ", fp8_unit, ", which ",
                                 deck.cite("precision", "products"), " needs; ");
  const auto report = [&](const auto&... parts) {
    mistakes.push_back(text(parts..., ", or products = \"compute\""));
  };
  if (m.hidden % fp8_unit != 0)
    report(deck.cite("model", "hidden"), " is", needs, nearest_multiples(m.hidden, fp8_unit));
  if (m.head_size() % fp8_unit != 0)
    report(deck.cite("model", "heads"), " gives a head size of ", m.head_size(), ",", needs,
           "set head_size, or choose other heads");
  const std::int64_t tensor = is_open(deck, "parallel", "tensor") ? 1 : deck.config.parallel.tensor;
  if (!splits(m.feed_forward, tensor))
    report(deck.cite("model", "feed_forward"), " over ", deck.cite("parallel", "tensor"),
           " gives parts that are", needs, nearest_multiples(m.feed_forward, fp8_unit * tensor),
           tensor > 1 ? ", another tensor" : "");
  const std::int64_t tokens = deck.config.batch.micro * m.sequence;
  if (!is_open(deck, "batch", "micro") && tokens % fp8_unit != 0)
    report(deck.cite("batch", "micro"), " · ", deck.cite("model", "sequence"), " = ", tokens, " is",
           needs, "choose a micro of ", fp8_unit / std::gcd(fp8_unit, m.sequence),
           " or a multiple of it");
  return mistakes;
}

namespace {

/// Ids of models with an encoder: they are ids of the vocabulary, and no span's sentinel is the
/// start or the end.
std::vector<std::string> mistakes_of_span_ids(const Deck& deck) {
  std::vector<std::string> mistakes;
  const auto report = [&](const auto&... parts) { mistakes.push_back(text(parts...)); };
  const Config& c = deck.config;
  const std::int64_t vocabulary = c.model.vocabulary;
  const SpanIds ids = span_ids(c);
  const auto expect_id = [&](const char* key, std::int64_t given) {
    if (given >= vocabulary)
      report(deck.cite("data", key), " is not a token id of ", deck.cite("model", "vocabulary"),
             "; choose at most ", vocabulary - 1, ", or a larger vocabulary");
  };
  expect_id("start_token", c.data.start_token);
  if (c.model.reads_pairs()) return mistakes;
  expect_id("end_token", c.data.end_token);
  expect_id("sentinel_token", c.data.sentinel_token);
  const std::int64_t last = ids.sentinel - c.model.spans().spans + 1;
  if (last < 0)
    report(deck.cite("data", "sentinel_token"), " leaves ids for ", ids.sentinel + 1, " of the ",
           c.model.spans().spans, " sentinels of a sample; choose ", c.model.spans().spans - 1,
           " or more");
  for (const auto& [key, id] : {std::pair{"start_token", ids.start}, {"end_token", ids.end}})
    if (id <= ids.sentinel && id >= last)
      report("[data] ", key, " = ", id, " is one of the sentinels ", last, " to ", ids.sentinel,
             " of a sample (", deck.where("data", key), "); choose another id");
  return mistakes;
}

}  // namespace

std::vector<std::string> mistakes_of_special_tokens(const Deck& deck) {
  if (deck.config.model.encoder.present()) return mistakes_of_span_ids(deck);
  const std::int64_t vocabulary = deck.config.model.vocabulary;
  const SpecialTokens ids = special_tokens(deck.config);
  const std::array<std::pair<const char*, std::int64_t>, 3> named{
      {{"class_token", ids.begin}, {"separator_token", ids.separator}, {"mask_token", ids.mask}}};
  std::vector<std::string> mistakes;
  for (const auto& [name, id] : named)
    if (id < 0 || id >= vocabulary)
      mistakes.push_back(
          text(deck.cite("data", name),
               id < 0 ? " needs 3 or more ids, but the deck has " : " is not a token id of ",
               deck.cite("model", "vocabulary"), "; choose a larger vocabulary"));
  if (ids.begin == ids.separator || ids.begin == ids.mask || ids.separator == ids.mask)
    mistakes.push_back(text("[data] class_token = ", ids.begin,
                            ", separator_token = ", ids.separator, " and mask_token = ", ids.mask,
                            " are not three different token ids (",
                            deck.where("data", "class_token"), "); choose others"));
  return mistakes;
}

void check_special_tokens(const Deck& deck) {
  const ModelConfig& m = deck.config.model;
  if (!m.predicts_masked_tokens() && !m.encoder.present()) return;
  std::string all;
  for (const std::string& mistake : mistakes_of_special_tokens(deck))
    all += (all.empty() ? "" : "\n") + mistake;
  check_usage(all.empty(), all);
}

}  // namespace trireme::deck
