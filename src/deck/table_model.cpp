// The keys of [model] (sizes, and properties whose defaults the family presets), of [experts] and
// of [adapter].
#include <trireme/deck/entry.hpp>

#include <trireme/deck/families.hpp>

#include <algorithm>
#include <cmath>

namespace trireme::deck {
namespace {

using Str = std::string;
using Int = std::int64_t;

constexpr std::int64_t size_limit = 16777216;  // keeps products of two sizes far from 2^63
constexpr std::int64_t expert_limit = 4096;

/// Properties of the architecture; the family presets most of them.
void model_properties(SectionKeys<ModelConfig>& model) {
  model.choice("norm", &ModelConfig::norm, "norm of the layers: LayerNorm or RMSNorm")
      .derive([](Config& c) { c.model.norm = preset(c.model.family).norm; },
              "layer for gpt and bert, otherwise rms");
  model
      .choice("norm_placement", &ModelConfig::norm_placement,
              "position of the norms: before attention and feed-forward (pre), after each residual "
              "addition (post), before attention and feed-forward and after them (sandwich), or "
              "only after them (output)")
      .derive([](Config& c) { c.model.norm_placement = preset(c.model.family).norm_placement; },
              "post for bert, sandwich for gemma2 and gemma3, output for olmo2, otherwise pre");
  model
      .number("norm_epsilon", &ModelConfig::norm_epsilon,
              "number added to the variance (LayerNorm) or mean square (RMSNorm) in norms")
      .above(0)
      .derive([](Config& c) { c.model.norm_epsilon = preset(c.model.family).norm_epsilon; },
              "1e-5 for gpt, llama, mistral, mixtral, olmoe and gpt_oss; 1e-12 for bert; otherwise "
              "1e-6");
  model
      .boolean("zero_centered_gains", &ModelConfig::zero_centered_gains,
               "gains of RMSNorm are stored minus 1, and begin as zeros")
      .derive(
          [](Config& c) {
            c.model.zero_centered_gains =
                c.model.norm == NormKind::rms && preset(c.model.family).zero_centered_gains;
          },
          "true for gemma, gemma2 and gemma3 with norm rms, otherwise false");
  model
      .choice("query_key_norm", &ModelConfig::query_key_norm,
              "RMSNorm of queries and keys, before rotary positions: none, of each head (head), or "
              "of all heads together (width)")
      .derive([](Config& c) { c.model.query_key_norm = preset(c.model.family).query_key_norm; },
              "head for qwen3, qwen3_moe and gemma3; width for olmo2 and olmoe; otherwise none");
  model
      .boolean("scaled_embeddings", &ModelConfig::scaled_embeddings,
               "multiplication of the token embeddings by the square root of hidden")
      .derive(
          [](Config& c) { c.model.scaled_embeddings = preset(c.model.family).scaled_embeddings; },
          "true for gemma, gemma2 and gemma3, otherwise false");
  model
      .choice("positions", &ModelConfig::positions,
              "position encoding: learned vectors added to the embedding, rotations of queries and "
              "keys (rotary), or with an encoder biases of attention scores (relative)")
      .derive([](Config& c) { c.model.positions = preset(c.model.family).positions; },
              "learned for gpt and bert, relative for t5, otherwise rotary");
  model
      .integer(
          "relative_buckets", &ModelConfig::relative_buckets,
          "classes of distances between tokens, each with a bias per head (positions relative)")
      .at_least(4)
      .at_most(1024)
      .otherwise(Int{32});
  model
      .integer("relative_distance", &ModelConfig::relative_distance,
               "distance from which all tokens are in the last class (positions relative)")
      .unit("tokens")
      .at_least(2)
      .at_most(size_limit)
      .otherwise(Int{128});
  model
      .number("rope_theta", &ModelConfig::rope_theta, "base of the wavelengths of rotary positions")
      .above(0)
      .derive(
          [](Config& c) { c.model.rope_theta = preset(c.model.family).rope_theta; },
          "10000; 1e6 for qwen2, qwen2_moe, qwen3, gemma3, mixtral and qwen3_moe; 5e5 for olmo2; "
          "150000 for gpt_oss");
  model
      .choice(
          "activation", &ModelConfig::activation,
          "non-linearity of the feed-forward layer: gelu, relu, or with a gate swiglu, geglu or "
          "clamped_swiglu (see docs/models.md)")
      .derive(
          [](Config& c) { c.model.activation = preset(c.model.family).activation; },
          "gelu for gpt and bert, geglu for gemma, gemma2 and gemma3, clamped_swiglu for gpt_oss, "
          "relu for t5, otherwise swiglu");
  model
      .number("activation_limit", &ModelConfig::activation_limit,
              "limit of the gate, and of the size of the other factor (clamped_swiglu)")
      .above(0)
      .otherwise(7.0);
  model
      .choice(
          "gelu", &ModelConfig::gelu,
          "form of GELU: exact, with the normal distribution, or its approximation by tanh or by "
          "the logistic function (quick)")
      .derive([](Config& c) { c.model.gelu = preset(c.model.family).gelu; },
              "tanh; exact for bert");
  model
      .choice("biases", &ModelConfig::biases,
              "matrix products of a layer that have a bias: none, only queries, keys and values "
              "(query_key_value), or all")
      .derive(
          [](Config& c) { c.model.biases = preset(c.model.family).biases; },
          "all for gpt, bert and gpt_oss, query_key_value for qwen2 and qwen2_moe, otherwise none");
  model
      .choice("mask", &ModelConfig::mask,
              "attention mask: each token sees the tokens up to itself (causal), or the whole "
              "sample (full)")
      .derive([](Config& c) { c.model.mask = preset(c.model.family).mask; },
              "full for bert, otherwise causal");
  model
      .integer("window", &ModelConfig::window,
               "window of sliding-window attention, including the token itself; 0 means no limit")
      .unit("tokens")
      .at_least(0)
      .at_most(size_limit)
      .derive([](Config& c) { c.model.window = preset(c.model.family).window; },
              "4096 for mistral, gemma2 and gemma3, 128 for gpt_oss, otherwise 0");
  model
      .integer("full_attention_every", &ModelConfig::full_attention_every,
               "period of the layers without a window: the last layer of each period has none; 0 "
               "means that all layers have the window")
      .at_least(0)
      .at_most(65536)
      .derive(
          [](Config& c) {
            c.model.full_attention_every =
                c.model.window > 0 ? preset(c.model.family).full_attention_every : 0;
          },
          "2 for gemma2 and gpt_oss, 6 for gemma3, otherwise 0; 0 without a window");
  model
      .integer("query_pre_attention_scalar", &ModelConfig::query_pre_attention_scalar,
               "number by whose square root attention scores are divided; 0 means the head size")
      .at_least(0)
      .at_most(size_limit)
      .derive(
          [](Config& c) {
            c.model.query_pre_attention_scalar = preset(c.model.family).query_pre_attention_scalar;
          },
          "1 for t5, otherwise 0: the head size");
  model
      .boolean("attention_sinks", &ModelConfig::attention_sinks,
               "a trained score of each head in its softmax, for no token: the weights of the "
               "tokens then sum to less than 1")
      .derive([](Config& c) { c.model.attention_sinks = preset(c.model.family).attention_sinks; },
              "true for gpt_oss, otherwise false");
  model
      .number("attention_softcap", &ModelConfig::attention_softcap,
              "soft cap c of attention scores, which become c tanh(score / c); 0 means none")
      .from(0)
      .derive(
          [](Config& c) { c.model.attention_softcap = preset(c.model.family).attention_softcap; },
          "50 for gemma2, otherwise 0");
  model
      .choice("objective", &ModelConfig::objective,
              "training objective: prediction of the next token, of masked tokens and segment "
              "pairs, or with an encoder of spans that its text lacks (corrupted_spans) or of the "
              "targets of pairs (sequence_to_sequence)")
      .derive([](Config& c) { c.model.objective = preset(c.model.family).objective; },
              "masked_token for bert, corrupted_spans for t5, otherwise next_token");
  model
      .number("logit_softcap", &ModelConfig::logit_softcap,
              "soft cap c of logits, which become c tanh(logit / c); 0 means none")
      .from(0)
      .derive(
          [](Config& c) {
            const bool used = !c.model.predicts_masked_tokens();
            c.model.logit_softcap = used ? preset(c.model.family).logit_softcap : 0;
          },
          "30 for gemma2, otherwise 0");
  model
      .boolean("scaled_logits", &ModelConfig::scaled_logits,
               "division of the logits by the square root of hidden")
      .derive(
          [](Config& c) {
            c.model.scaled_logits = preset(c.model.family).scaled_logits && c.model.tied_embeddings;
          },
          "true for t5 with tied_embeddings, otherwise false");
  model
      .number("masked_share", &ModelConfig::masked_share,
              "fraction of a sample's tokens that are masked and predicted, rounded to a whole "
              "number of tokens (objective masked_token)")
      .effect(Effect::numbers)
      .above(0)
      .below(1)
      .otherwise(0.15);
  model
      .choice("sentence_loss", &ModelConfig::sentence_loss,
              "prediction for a pair of segments: whether the second follows the first in the text "
              "(next), whether they are in order (order), or none (objective masked_token)")
      .otherwise(Str("next"));
}

/// Keys of latent attention.
void latent_keys(SectionKeys<ModelConfig>& model) {
  const auto size = [&](const char* name, Int ModelConfig::*field, const char* help) -> Entry& {
    return model.integer(name, field, help).at_least(0).at_most(size_limit);
  };
  size("key_value_rank", &ModelConfig::key_value_rank,
       "columns from which all heads compute their keys and values (latent attention); 0 means one "
       "product")
      .derive([](Config& c) { c.model.key_value_rank = preset(c.model.family).key_value_rank; },
              "512 for deepseek_v3, otherwise 0");
  size("query_rank", &ModelConfig::query_rank,
       "columns from which all heads compute their queries (latent attention); 0 means one product")
      .derive([](Config& c) { c.model.query_rank = preset(c.model.family).query_rank; },
              "1536 for deepseek_v3, otherwise 0");
  size(
      "rotary_size", &ModelConfig::rotary_size,
      "last columns of a head that rotary positions change, with keys that all heads share (latent "
      "attention); 0 means all")
      .derive([](Config& c) { c.model.rotary_size = preset(c.model.family).rotary_size; },
              "64 for deepseek_v3, otherwise 0");
  size("value_size", &ModelConfig::value_size,
       "columns of a head's values (latent attention); 0 means the head size")
      .derive([](Config& c) { c.model.value_size = preset(c.model.family).value_size; },
              "128 for deepseek_v3, otherwise 0");
}

/// Keys of rotary positions for layers with a window and for longer sequences.
void rotary_keys(SectionKeys<ModelConfig>& model) {
  model
      .number("window_rope_theta", &ModelConfig::window_rope_theta,
              "rope_theta of the layers with a window, which then have no rope_scaling; 0 means "
              "rope_theta for all layers")
      .from(0)
      .derive(
          [](Config& c) {
            const bool used = c.model.window > 0 && c.model.positions == Positions::rotary;
            c.model.window_rope_theta = used ? preset(c.model.family).window_rope_theta : 0;
          },
          "10000 for gemma3, otherwise 0");
  model
      .choice("rope_scaling", &ModelConfig::rope_scaling,
              "change of rotary positions for sequences longer than in an earlier training, as in "
              "transformers; see docs/models.md")
      .effect(Effect::function)
      .otherwise(Str("none"));
  model
      .number("rope_factor", &ModelConfig::rope_factor,
              "factor of the longest wavelengths (rope_scaling other than none)")
      .effect(Effect::function)
      .from(1)
      .otherwise(1.0);
  model
      .integer("rope_original_sequence", &ModelConfig::rope_original_sequence,
               "sequence of the earlier training; required for rope_scaling dynamic, yarn and "
               "llama3")
      .effect(Effect::function)
      .unit("tokens")
      .at_least(0)
      .at_most(size_limit)
      .otherwise(Int{0});
  const auto number = [&](const char* name, double ModelConfig::*field, double value,
                          const char* help) {
    model.number(name, field, help).effect(Effect::function).above(0).otherwise(value);
  };
  number("rope_low_frequency_factor", &ModelConfig::rope_low_frequency_factor, 1,
         "divisor of rope_original_sequence: longer wavelengths are multiplied by rope_factor "
         "(llama3)");
  number("rope_high_frequency_factor", &ModelConfig::rope_high_frequency_factor, 4,
         "divisor of rope_original_sequence: shorter wavelengths do not change (llama3)");
  number("rope_beta_fast", &ModelConfig::rope_beta_fast, 32,
         "number of turns within rope_original_sequence above which pairs do not change (yarn)");
  number("rope_beta_slow", &ModelConfig::rope_beta_slow, 1,
         "number of turns within rope_original_sequence below which wavelengths are multiplied by "
         "rope_factor (yarn)");
  model
      .number("rope_attention_factor", &ModelConfig::rope_attention_factor,
              "factor of rotated queries and keys (yarn)")
      .effect(Effect::function)
      .from(0)
      .otherwise(0.0, "0: 0.1 ln(rope_factor) + 1");
  const auto mscale = [&](const char* name, double ModelConfig::*field, const char* help) {
    model.number(name, field, help).effect(Effect::function).from(0).otherwise(0.0);
  };
  mscale("rope_mscale", &ModelConfig::rope_mscale,
         "k: with rope_mscale_all, rotated queries and keys are multiplied by m(k) / m(k'), with "
         "m(k) = 0.1 k ln(rope_factor) + 1 (yarn); 0 means not given");
  mscale("rope_mscale_all", &ModelConfig::rope_mscale_all,
         "k': attention scores are multiplied by m(k')² (yarn); 0 means not given");
  model
      .boolean("rope_interleaved", &ModelConfig::rope_interleaved,
               "rotary positions turn neighbouring columns, not those of two halves (latent "
               "attention)")
      .effect(Effect::function)
      .derive([](Config& c) { c.model.rope_interleaved = preset(c.model.family).rope_interleaved; },
              "true for deepseek_v3, otherwise false");
  model
      .boolean("rope_truncate", &ModelConfig::rope_truncate,
               "rounding of the limits from rope_beta_fast and rope_beta_slow to whole pairs "
               "(yarn)")
      .effect(Effect::function)
      .otherwise(true);
}

}  // namespace

void model_keys(std::vector<Entry>& out) {
  SectionKeys model(out, "model", &Config::model, Effect::model);
  const auto size = [&](const char* name, Int ModelConfig::*field, const char* help) -> Entry& {
    return model.integer(name, field, help).at_least(1).at_most(size_limit);
  };
  model
      .choice("family", &ModelConfig::family,
              "published architecture, which presets the properties below: gpt, llama, bert, "
              "qwen2, qwen3, mistral, gemma, gemma2, gemma3, olmo2, mixtral, qwen3_moe, olmoe, "
              "qwen2_moe, gpt_oss, deepseek_v3 or t5; see docs/models.md")
      .otherwise(Str("gpt"));
  size("layers", &ModelConfig::layers, "transformer layers; with an encoder, those of the decoder")
      .at_most(65536);
  size("hidden", &ModelConfig::hidden, "width of the residual stream");
  size("heads", &ModelConfig::heads, "attention heads");
  size("key_value_heads", &ModelConfig::key_value_heads,
       "heads of keys and values, a divisor of heads (grouped-query attention)")
      .derive([](Config& c) { c.model.key_value_heads = c.model.heads; }, "model.heads");
  size("head_size", &ModelConfig::explicit_head_size,
       "columns of a head; 0 means hidden / heads, which must then be a whole number")
      .at_least(0)
      .otherwise(Int{0}, "0: hidden / heads");
  size("feed_forward", &ModelConfig::feed_forward, "inner width of the feed-forward layer")
      .derive([](Config& c) { c.model.feed_forward = 4 * c.model.hidden; }, "4 · model.hidden")
      .at_most(4 * size_limit);
  size("sequence", &ModelConfig::sequence, "tokens per sample")
      .effect(Effect::length)
      .unit("tokens");
  size("vocabulary", &ModelConfig::vocabulary,
       "number of token ids of the model; 0 means the number of ids of the token file's tokenizer")
      .at_least(0)
      .at_most(identifier_limit)
      .otherwise(Int{0}, "0: from the token file");
  size("shared_layers", &ModelConfig::shared_layers,
       "groups of layers that share weights (ALBERT): layer i has the weights of group i mod "
       "shared_layers; 0 means no sharing")
      .at_least(0)
      .otherwise(Int{0});
  model
      .integer("predicts", &ModelConfig::predicts,
               "tokens that each token predicts: the next one, and each further one with a module "
               "after the last layer (DeepSeek-AI 2024, arXiv 2412.19437, section 2.2)")
      .at_least(1)
      .at_most(most_predicts)
      .otherwise(Int{1});
  model
      .number("predict_weight", &ModelConfig::predict_weight,
              "weight of the mean of the modules' losses, relative to the loss of the next token")
      .effect(Effect::training)
      .from(0)
      .otherwise(0.3);
  model.number("dropout", &ModelConfig::dropout, "fraction of activations set to zero in training")
      .effect(Effect::training)
      .from(0)
      .below(1)
      .otherwise(0.0);
  model
      .boolean("tied_embeddings", &ModelConfig::tied_embeddings,
               "one array for the input embedding and the output projection")
      .otherwise(true);
  model_properties(model);
  latent_keys(model);
  rotary_keys(model);
}

void packing_key(std::vector<Entry>& out) {
  SectionKeys(out, "data", &Config::model)
      .choice("packing", &ModelConfig::packing,
              "content of a sample: a window of the token stream (none), or whole documents, which "
              "do not attend to one another (documents); with objective sequence_to_sequence, one "
              "pair (none), or several pairs (documents)")
      .effect(Effect::numbers)
      .otherwise(Str("none"));
}

/// The experts of the deck's family; the defaults of ExpertsConfig if the deck's model has none.
ExpertsConfig preset_experts(const Config& c) {
  return c.model.experts.present() ? preset(c.model.family).experts : ExpertsConfig();
}

void expert_keys(std::vector<Entry>& out) {
  const auto key = [&out](const char* name, KeyType type, auto ExpertsConfig::*member,
                          const char* help, Effect effect = Effect::model) -> Entry& {
    return out.emplace_back("experts", name, type, help, effect)
        .in(&Config::model, &ModelConfig::experts, member);
  };
  key("number", KeyType::integer, &ExpertsConfig::number,
      "experts of a layer; 0 means one feed-forward part for all tokens")
      .at_least(0)
      .at_most(expert_limit)
      .derive([](Config& c) { c.model.experts.number = preset(c.model.family).experts.number; },
              "8 for mixtral, 128 for qwen3_moe and gpt_oss, 64 for olmoe, 60 for qwen2_moe, "
              "otherwise 0");
  key("active", KeyType::integer, &ExpertsConfig::active,
      "experts that each token uses: those with the largest scores of the router", Effect::function)
      .at_least(1)
      .at_most(expert_limit)
      .derive([](Config& c) { c.model.experts.active = preset_experts(c).active; },
              "8 for qwen3_moe, olmoe and deepseek_v3, 4 for qwen2_moe and gpt_oss, otherwise 2");
  key("feed_forward", KeyType::integer, &ExpertsConfig::feed_forward, "inner width of an expert")
      .at_least(1)
      .at_most(4 * size_limit)
      .derive([](Config& c) { c.model.experts.feed_forward = c.model.feed_forward; },
              "model.feed_forward");
  key("normalised", KeyType::boolean, &ExpertsConfig::normalised,
      "division of the weights of a token's experts by their sum", Effect::function)
      .derive([](Config& c) { c.model.experts.normalised = preset_experts(c).normalised; },
              "false for olmoe and qwen2_moe, otherwise true");
  key("score", KeyType::choice, &ExpertsConfig::score,
      "scores of a router: softmax of its logits, or sigmoid of each")
      .words(words_of_keys<ExpertScore>())
      .derive([](Config& c) { c.model.experts.score = preset_experts(c).score; },
              "sigmoid for deepseek_v3, otherwise softmax");
  key("scale", KeyType::number, &ExpertsConfig::scale, "factor of the weights of a token's experts",
      Effect::function)
      .above(0)
      .derive([](Config& c) { c.model.experts.scale = preset_experts(c).scale; },
              "2.5 for deepseek_v3, otherwise 1");
  key("groups", KeyType::integer, &ExpertsConfig::groups,
      "equal groups of neighbouring experts, of which a token chooses active_groups first: those "
      "with the largest sums of their two largest scores",
      Effect::function)
      .at_least(1)
      .at_most(64)
      .derive([](Config& c) { c.model.experts.groups = preset_experts(c).groups; },
              "8 for deepseek_v3, otherwise 1");
  key("active_groups", KeyType::integer, &ExpertsConfig::active_groups,
      "groups from which a token chooses its experts", Effect::function)
      .at_least(1)
      .at_most(64)
      .derive([](Config& c) { c.model.experts.active_groups = preset_experts(c).active_groups; },
              "4 for deepseek_v3, otherwise 1");
  key("choice_bias", KeyType::boolean, &ExpertsConfig::choice_bias,
      "a bias of each expert that is added to its score for the choice, but not for its weight")
      .derive([](Config& c) { c.model.experts.choice_bias = preset_experts(c).choice_bias; },
              "true for deepseek_v3, otherwise false");
  key("first_layer", KeyType::integer, &ExpertsConfig::first_layer,
      "first layer with experts, counted from 0")
      .at_least(0)
      .at_most(65536)
      .derive([](Config& c) { c.model.experts.first_layer = preset_experts(c).first_layer; },
              "3 for deepseek_v3, otherwise 0");
  key("every", KeyType::integer, &ExpertsConfig::every,
      "distance between layers with experts; 1 means that all layers from first_layer on have some")
      .at_least(1)
      .at_most(65536)
      .otherwise(Int{1});
  key("shared_feed_forward", KeyType::integer, &ExpertsConfig::shared_feed_forward,
      "inner width of a further expert that all tokens use; 0 means none")
      .at_least(0)
      .at_most(4 * size_limit)
      .derive(
          [](Config& c) {
            c.model.experts.shared_feed_forward = preset_shared_feed_forward(c.model);
          },
          "model.feed_forward for qwen2_moe, experts.feed_forward for deepseek_v3, otherwise 0");
  key("shared_gate", KeyType::boolean, &ExpertsConfig::shared_gate,
      "multiplication of the shared expert's result by a sigmoid of each token")
      .derive(
          [](Config& c) {
            ExpertsConfig& e = c.model.experts;
            e.shared_gate = preset_experts(c).shared_gate && e.shares();
          },
          "true for qwen2_moe with a shared expert, otherwise false");
  key("balance", KeyType::choice, &ExpertsConfig::balance,
      "loss that spreads tokens over the experts: none, one per sample (sequence), or one with the "
      "tokens of each expert in the previous step (batch)",
      Effect::state)
      .words(words_of_keys<ExpertBalance>())
      .derive(
          [](Config& c) {
            ExpertsConfig& e = c.model.experts;
            e.balance = e.present() ? ExpertBalance::sequence : ExpertBalance::none;
          },
          "sequence with experts, otherwise none");
  key("balance_weight", KeyType::number, &ExpertsConfig::balance_weight,
      "weight of this loss, which is 1 for each layer if all experts are used equally",
      Effect::training)
      .from(0)
      .otherwise(0.01);
  key("split", KeyType::boolean, &ExpertsConfig::split,
      "whether the tensor ranks split the inner columns of every expert; otherwise they divide "
      "whole "
      "experts among them",
      Effect::none)
      .otherwise(false);
  key("capacity", KeyType::number, &ExpertsConfig::capacity,
      "most tokens of a sample that an expert processes, relative to equal use: the first ones "
      "that chose it; 0 means all",
      Effect::function)
      .from(0)
      .otherwise(0.0);
  key("rows", KeyType::number, &ExpertsConfig::rows,
      "rows that a rank's experts process at a time, relative to the mean of a micro-batch, so "
      "that "
      "memory is bounded however uneven the choices are; the backward pass computes the experts' "
      "inner rows again; 0 means all rows at once",
      Effect::numbers)
      .from(0)
      .otherwise(0.0);
  key("bias_rate", KeyType::number, &ExpertsConfig::bias_rate,
      "change per step of each expert's choice_bias: up if the expert had fewer tokens of the "
      "global batch than the mean, otherwise down; 0: the bias is constant",
      Effect::state)
      .from(0)
      .otherwise(0.0);
  key("z_weight", KeyType::number, &ExpertsConfig::z_weight,
      "weight of the mean square of log Σ exp(logits) of a router, which keeps logits small",
      Effect::training)
      .from(0)
      .otherwise(0.0);
}

void encoder_keys(std::vector<Entry>& out) {
  const auto key = [&out](const char* name, KeyType type, auto EncoderConfig::*member,
                          const char* help, Effect effect = Effect::model) -> Entry& {
    return out.emplace_back("encoder", name, type, help, effect)
        .in(&Config::model, &ModelConfig::encoder, member);
  };
  key("layers", KeyType::integer, &EncoderConfig::layers,
      "layers of the encoder; 0 means no encoder")
      .at_least(0)
      .at_most(65536)
      .derive(
          [](Config& c) {
            c.model.encoder.layers = c.model.family == Family::t5 ? c.model.layers : 0;
          },
          "model.layers for t5, otherwise 0");
  key("sequence", KeyType::integer, &EncoderConfig::sequence,
      "tokens of a sample's source, which the encoder reads", Effect::length)
      .unit("tokens")
      .at_least(0)
      .at_most(size_limit)
      .otherwise(Int{0});
  key("noise", KeyType::number, &EncoderConfig::noise,
      "fraction of a text's tokens that the source lacks (objective corrupted_spans)",
      Effect::numbers)
      .above(0)
      .below(1)
      .otherwise(0.15);
  key("span", KeyType::number, &EncoderConfig::span,
      "mean number of tokens of such a span (objective corrupted_spans)", Effect::numbers)
      .unit("tokens")
      .from(1)
      .otherwise(3.0);
}

std::int64_t ExpertsConfig::tokens_per_sample(std::int64_t sequence) const {
  if (capacity == 0) return sequence;
  const double mean = static_cast<double>(sequence * active) / static_cast<double>(number);
  return static_cast<std::int64_t>(
      std::min(std::ceil(capacity * mean), static_cast<double>(sequence)));
}

// The keys of [adapter].
double AdapterConfig::factor() const {
  const auto r = static_cast<double>(rank);
  return alpha / (scaling == AdapterScaling::rslora ? std::sqrt(r) : r);
}

void adapter_keys(std::vector<Entry>& out) {
  const auto key = [&out](const char* name, KeyType type, auto AdapterConfig::*member,
                          const char* help, Effect effect) -> Entry& {
    return out.emplace_back("adapter", name, type, help, effect)
        .in(&Config::model, &ModelConfig::adapter, member);
  };
  key("kind", KeyType::choice, &AdapterConfig::kind,
      "adapters of the products in targets: none, low-rank updates (lora; Hu et al. 2021), or "
      "low-rank updates with a trained magnitude of each output (dora; Liu et al. 2024); all other "
      "weights are then frozen",
      Effect::adapter)
      .words(words_of_keys<AdapterKind>())
      .otherwise(std::string("none"));
  key("rank", KeyType::integer, &AdapterConfig::rank, "rank r of the updates", Effect::adapter)
      .at_least(1)
      .at_most(65536)
      .otherwise(std::int64_t{8});
  key("alpha", KeyType::number, &AdapterConfig::alpha,
      "numerator of the factor of the updates, alpha / rank", Effect::adapter)
      .above(0)
      .otherwise(16.0);
  key("scaling", KeyType::choice, &AdapterConfig::scaling,
      "factor of the updates: alpha / rank (standard), or alpha / √rank (rslora; Kalajdzievski "
      "2023)",
      Effect::adapter)
      .words(words_of_keys<AdapterScaling>())
      .otherwise(std::string("standard"));
  key("dropout", KeyType::number, &AdapterConfig::dropout,
      "fraction of the elements of an adapter's input that are set to zero in training",
      Effect::training)
      .from(0)
      .below(1)
      .otherwise(0.0);
  key("targets", KeyType::list, &AdapterConfig::targets,
      "products with adapters; docs/fine_tuning.md lists their names in PEFT", Effect::adapter)
      .words({"attention.query", "attention.key_value", "attention.query_key_value",
              "attention.output", "cross_attention.query", "cross_attention.key_value",
              "cross_attention.output", "feed_forward.up", "feed_forward.gate_up",
              "feed_forward.down", "experts.shared_up", "experts.shared_gate_up",
              "experts.shared_down"})
      .derive(
          [](Config& c) {
            if (c.model.adapter.present())
              c.model.adapter.targets = {"attention.query", "attention.key_value"};
          },
          "attention.query and attention.key_value");
  key("parts", KeyType::list, &AdapterConfig::parts,
      "parts of the model whose targets have adapters: the layers of [model], of [encoder] or of "
      "[vision]",
      Effect::adapter)
      .words({"layers", "encoder", "vision"})
      .derive(
          [](Config& c) {
            if (!c.model.adapter.present()) return;
            c.model.adapter.parts = {"layers"};
            if (c.model.encoder.present()) c.model.adapter.parts.push_back("encoder");
          },
          "layers, and with an encoder also encoder");
  key("also_trained", KeyType::list, &AdapterConfig::also_trained,
      "patterns of the names of other arrays that are trained, as in optimizer.frozen",
      Effect::state)
      .otherwise(Words{});
}

}  // namespace trireme::deck
