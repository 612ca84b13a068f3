#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/base/check.hpp>
#include <trireme/checkpoint/reader.hpp>
#include <trireme/checkpoint/writer.hpp>
#include <trireme/deck/families.hpp>
#include <trireme/hugging_face/safetensors.hpp>

#include <support/messages.hpp>
#include <support/source_folder.hpp>
#include <support/temporary_folder.hpp>

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace trireme::hugging_face::testing {

using trireme::testing::expect_mentions;
using trireme::testing::golden_file;
using trireme::testing::message_of;
using trireme::testing::read_file;
using trireme::testing::TemporaryFolder;

/// A model with odd sizes: 6 heads of size 24, and prime vocabulary and sequence.
inline deck::ModelConfig odd_model(bool tied) {
  deck::ModelConfig m;
  m.layers = 2;
  m.hidden = 144;
  m.heads = m.key_value_heads = 6;
  m.feed_forward = m.experts.feed_forward = 333;
  m.sequence = 61;
  m.vocabulary = 503;
  m.tied_embeddings = tied;
  return m;
}

/// A model of the same sizes with 3 key/value heads, and the properties that llama lacks.
inline deck::ModelConfig odd_llama(bool tied, Family family = Family::llama) {
  deck::ModelConfig m = odd_model(tied);
  deck::set_family(m, family);
  m.key_value_heads = 3;
  m.norm_epsilon = 1e-6;
  if (family == Family::qwen3 || m.zero_centered_gains) m.explicit_head_size = 32;
  if (m.full_attention_every > 0) m.window = 7;
  if (family == Family::mistral) m.window = 7;
  if (m.experts.present()) {
    m.experts.number = 5;
    m.experts.active = 2;
  }
  if (family == Family::gpt_oss) {
    m.feed_forward = m.experts.feed_forward = 41;
    m.activation_limit = 2.5;
  }
  if (family == Family::qwen2_moe) {
    m.experts.feed_forward = 40;
    m.experts.shared_feed_forward = 17;
  }
  if (family == Family::deepseek_v3) {
    m.key_value_heads = 6;
    m.explicit_head_size = 28;
    m.key_value_rank = 19;
    m.query_rank = 25;
    m.rotary_size = 10;
    m.value_size = 15;
    m.experts.number = 6;
    m.experts.feed_forward = 40;
    m.experts.shared_feed_forward = 80;
    m.experts.groups = 3;
    m.experts.active_groups = 2;
    m.experts.first_layer = 1;
  }
  if (family == Family::qwen3_moe) {
    m.experts.feed_forward = 40;
    m.experts.first_layer = 1;
    m.experts.every = 2;
  }
  return m;
}

inline deck::ModelConfig odd_bert(bool tied, SentenceLoss sentences) {
  deck::ModelConfig m = odd_model(tied);
  deck::set_family(m, Family::bert);
  m.norm_epsilon = 1e-12;
  m.gelu = Gelu::exact;
  m.sentence_loss = sentences;
  return m;
}

/// Version 1.0 of T5, or version 1.1 with embeddings that are not tied. The lengths are those of
/// sources of 61 tokens.
inline deck::ModelConfig odd_t5(bool tied) {
  deck::ModelConfig m = odd_model(tied);
  deck::set_family(m, Family::t5);
  m.encoder.layers = 2;
  m.encoder.sequence = 61;
  m.layers = 3;
  m.sequence = m.spans().target;
  m.explicit_head_size = 32;
  m.scaled_logits = tied;
  if (!tied) m.activation = Activation::geglu;
  return m;
}

/// Bits that differ between neighbours; any finite fp32 value and NaN can occur.
inline std::vector<std::uint32_t> bits_of(const std::string& name, std::int64_t count) {
  std::vector<std::uint32_t> out;
  std::uint64_t state = std::hash<std::string>()(name);
  for (std::int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    out.push_back(static_cast<std::uint32_t>(state >> 32));
  }
  return out;
}

/// Weights of a model as fp32 bits, by name.
using Weights = std::map<std::string, std::vector<std::uint32_t>>;

inline Weights weights_of(const deck::ModelConfig& model) {
  Weights out;
  for (const auto& spec : architecture::describe(model).arrays)
    out[spec.name] = bits_of(spec.name, spec.elements());
  return out;
}

/// Writes a checkpoint of these weights and one optimizer array.
inline std::string write_checkpoint(const std::string& directory, const deck::ModelConfig& model,
                                    const Weights& weights, std::int64_t step = 7) {
  std::vector<checkpoint::ArrayView> views;
  for (const auto& spec : architecture::describe(model).arrays)
    views.push_back({spec.name, DType::fp32, spec.shape, weights.at(spec.name).data()});
  const std::vector<float> moment(static_cast<std::size_t>(model.hidden), 1.0f);
  views.push_back(
      {"optimizer.first_moment.final_norm.gain", DType::fp32, {model.hidden}, moment.data()});
  checkpoint::write(directory, {step, 8 * step, "deck"}, views, 0);
  return directory + "/step_0000000" + std::to_string(step);
}

}  // namespace trireme::hugging_face::testing
