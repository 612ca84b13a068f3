// The properties of published architectures. A family begins with the defaults of ModelConfig, or
// with the properties of the family that it extends.
#include <trireme/deck/families.hpp>

#include <tuple>

namespace trireme::deck {
namespace {

/// Radford et al. 2019.
void gpt(ModelConfig&) {}  // the defaults of ModelConfig

/// Touvron et al. 2023, arXiv 2302.13971 and 2307.09288.
void llama(ModelConfig& m) {
  m.norm = NormKind::rms;
  m.positions = Positions::rotary;
  m.activation = Activation::swiglu;
  m.biases = Biases::none;
}

/// Devlin et al. 2019, arXiv 1810.04805.
void bert(ModelConfig& m) {
  m.norm_placement = NormPlacement::post;
  m.norm_epsilon = 1e-12;
  m.gelu = Gelu::exact;
  m.mask = Mask::full;
  m.objective = Objective::masked_token;
}

/// Yang et al. 2024, arXiv 2407.10671.
void qwen2(ModelConfig& m) {
  llama(m);
  m.biases = Biases::query_key_value;
  m.norm_epsilon = 1e-6;
  m.rope_theta = 1e6;
}

/// Yang et al. 2025, arXiv 2505.09388.
void qwen3(ModelConfig& m) {
  llama(m);
  m.query_key_norm = QueryKeyNorm::head;
  m.norm_epsilon = 1e-6;
  m.rope_theta = 1e6;
}

/// OLMo Team 2025, arXiv 2501.00656.
void olmo2(ModelConfig& m) {
  llama(m);
  m.norm_placement = NormPlacement::output;
  m.query_key_norm = QueryKeyNorm::width;
  m.norm_epsilon = 1e-6;
  m.rope_theta = 5e5;
}

/// Jiang et al. 2023, arXiv 2310.06825.
void mistral(ModelConfig& m) {
  llama(m);
  m.window = 4096;
}

/// Gemma Team 2024, arXiv 2403.08295.
void gemma(ModelConfig& m) {
  llama(m);
  m.norm_epsilon = 1e-6;
  m.zero_centered_gains = true;
  m.scaled_embeddings = true;
  m.activation = Activation::geglu;
}

/// Gemma Team 2024, arXiv 2408.00118.
void gemma2(ModelConfig& m) {
  gemma(m);
  m.norm_placement = NormPlacement::sandwich;
  m.attention_softcap = 50;
  m.logit_softcap = 30;
  m.window = 4096;
  m.full_attention_every = 2;
}

/// Gemma Team 2025, arXiv 2503.19786.
void gemma3(ModelConfig& m) {
  gemma(m);
  m.norm_placement = NormPlacement::sandwich;
  m.query_key_norm = QueryKeyNorm::head;
  m.window = 4096;
  m.full_attention_every = 6;
  m.rope_theta = 1e6;
  m.window_rope_theta = 1e4;
}

/// Jiang et al. 2024, arXiv 2401.04088.
void mixtral(ModelConfig& m) {
  llama(m);
  m.rope_theta = 1e6;
  m.experts.number = 8;
  m.experts.active = 2;
  m.experts.balance = ExpertBalance::sequence;
}

/// Yang et al. 2025, arXiv 2505.09388.
void qwen3_moe(ModelConfig& m) {
  qwen3(m);
  m.experts.number = 128;
  m.experts.active = 8;
  m.experts.balance = ExpertBalance::sequence;
}

/// Muennighoff et al. 2024, arXiv 2409.02060.
void olmoe(ModelConfig& m) {
  llama(m);
  m.query_key_norm = QueryKeyNorm::width;
  m.experts.number = 64;
  m.experts.active = 8;
  m.experts.normalised = false;
  m.experts.balance = ExpertBalance::sequence;
}

/// Yang et al. 2024, arXiv 2407.10671, section 2.2.2.
void qwen2_moe(ModelConfig& m) {
  qwen2(m);
  m.experts.number = 60;
  m.experts.active = 4;
  m.experts.normalised = false;
  m.experts.shared_gate = true;
  m.experts.balance = ExpertBalance::sequence;
}

/// OpenAI 2025, "gpt-oss-120b & gpt-oss-20b Model Card", arXiv 2508.10925, section 2.
void gpt_oss(ModelConfig& m) {
  llama(m);
  m.rope_theta = 150000;
  m.activation = Activation::clamped_swiglu;
  m.biases = Biases::all;
  m.window = 128;
  m.full_attention_every = 2;
  m.attention_sinks = true;
  m.experts.number = 128;
  m.experts.active = 4;
  m.experts.balance = ExpertBalance::sequence;
}

/// DeepSeek-AI 2024, arXiv 2412.19437, section 2.1.
void deepseek_v3(ModelConfig& m) {
  llama(m);
  m.norm_epsilon = 1e-6;
  m.key_value_rank = 512;
  m.query_rank = 1536;
  m.rotary_size = 64;
  m.value_size = 128;
  m.rope_interleaved = true;
  m.experts.number = 256;
  m.experts.active = 8;
  m.experts.score = ExpertScore::sigmoid;
  m.experts.scale = 2.5;
  m.experts.groups = 8;
  m.experts.active_groups = 4;
  m.experts.choice_bias = true;
  m.experts.first_layer = 3;
  m.experts.balance = ExpertBalance::sequence;
}

/// Raffel et al. 2020, arXiv 1910.10683: version 1.0. Version 1.1 has activation geglu, and neither
/// tied embeddings nor scaled logits.
void t5(ModelConfig& m) {
  m.norm = NormKind::rms;
  m.norm_epsilon = 1e-6;
  m.positions = Positions::relative;
  m.activation = Activation::relu;
  m.biases = Biases::none;
  m.query_pre_attention_scalar = 1;
  m.scaled_logits = true;
  m.objective = Objective::corrupted_spans;
}

/// The properties that a family sets.
auto properties(ModelConfig& m) {
  return std::tie(m.family, m.norm, m.norm_placement, m.norm_epsilon, m.query_key_norm, m.positions,
                  m.rope_theta, m.activation, m.gelu, m.biases, m.mask, m.window,
                  m.full_attention_every, m.zero_centered_gains, m.scaled_embeddings,
                  m.attention_softcap, m.logit_softcap, m.window_rope_theta, m.objective,
                  m.attention_sinks, m.key_value_rank, m.query_rank, m.rotary_size, m.value_size,
                  m.rope_interleaved, m.experts, m.query_pre_attention_scalar, m.scaled_logits);
}

}  // namespace

ModelConfig preset(Family family) {
  ModelConfig m;
  m.family = family;
  switch (family) {
    case Family::gpt:
      gpt(m);
      break;
    case Family::llama:
      llama(m);
      break;
    case Family::bert:
      bert(m);
      break;
    case Family::qwen2:
      qwen2(m);
      break;
    case Family::qwen3:
      qwen3(m);
      break;
    case Family::mistral:
      mistral(m);
      break;
    case Family::gemma:
      gemma(m);
      break;
    case Family::gemma2:
      gemma2(m);
      break;
    case Family::gemma3:
      gemma3(m);
      break;
    case Family::olmo2:
      olmo2(m);
      break;
    case Family::mixtral:
      mixtral(m);
      break;
    case Family::qwen3_moe:
      qwen3_moe(m);
      break;
    case Family::olmoe:
      olmoe(m);
      break;
    case Family::qwen2_moe:
      qwen2_moe(m);
      break;
    case Family::gpt_oss:
      gpt_oss(m);
      break;
    case Family::deepseek_v3:
      deepseek_v3(m);
      break;
    case Family::t5:
      t5(m);
      break;
  }
  return m;
}

std::int64_t preset_shared_feed_forward(const ModelConfig& m) {
  if (!m.experts.present()) return 0;
  if (preset(m.family).experts.shared_gate) return m.feed_forward;
  return m.family == Family::deepseek_v3 ? m.experts.feed_forward : 0;
}

void set_family(ModelConfig& m, Family family) {
  ModelConfig of_family = preset(family);
  properties(m) = properties(of_family);
  m.experts.feed_forward = m.feed_forward;
  m.experts.shared_feed_forward = preset_shared_feed_forward(m);
}

}  // namespace trireme::deck
