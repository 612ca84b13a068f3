// The properties of published architectures. A family begins with the defaults of ModelConfig, or
// with the properties of its predecessor.
#include <trireme/deck/families.hpp>

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
  m.head_norm = true;
  m.norm_epsilon = 1e-6;
  m.rope_theta = 1e6;
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
  m.head_norm = true;
  m.window = 4096;
  m.full_attention_every = 6;
  m.rope_theta = 1e6;
  m.window_rope_theta = 1e4;
}

}  // namespace

ModelConfig preset(Family family) {
  ModelConfig m;
  set_family(m, family);
  return m;
}

void set_family(ModelConfig& m, Family family) {
  const ModelConfig defaults;
  m.family = family;
  m.norm = defaults.norm;
  m.norm_placement = defaults.norm_placement;
  m.norm_epsilon = defaults.norm_epsilon;
  m.head_norm = defaults.head_norm;
  m.positions = defaults.positions;
  m.rope_theta = defaults.rope_theta;
  m.activation = defaults.activation;
  m.gelu = defaults.gelu;
  m.biases = defaults.biases;
  m.mask = defaults.mask;
  m.window = defaults.window;
  m.full_attention_every = defaults.full_attention_every;
  m.zero_centered_gains = defaults.zero_centered_gains;
  m.scaled_embeddings = defaults.scaled_embeddings;
  m.attention_softcap = defaults.attention_softcap;
  m.logit_softcap = defaults.logit_softcap;
  m.window_rope_theta = defaults.window_rope_theta;
  m.objective = defaults.objective;
  switch (family) {
    case Family::gpt:
      return gpt(m);
    case Family::llama:
      return llama(m);
    case Family::bert:
      return bert(m);
    case Family::qwen2:
      return qwen2(m);
    case Family::qwen3:
      return qwen3(m);
    case Family::mistral:
      return mistral(m);
    case Family::gemma:
      return gemma(m);
    case Family::gemma2:
      return gemma2(m);
    case Family::gemma3:
      return gemma3(m);
  }
}

}  // namespace trireme::deck
