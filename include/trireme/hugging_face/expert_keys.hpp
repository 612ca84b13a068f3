#pragma once

#include <trireme/hugging_face/complaints.hpp>
#include <trireme/hugging_face/config_key.hpp>

#include <vector>

/// Keys of config.json for mixtures of experts.
namespace trireme::hugging_face {

/// Adds keys of MixtralForCausalLM: the number of experts, and members with a fixed value. Call
/// after intermediate_size has been added to `keys`: it is the inner width of an expert.
void add_mixtral_keys(std::vector<ConfigKey>& keys);
/// Like add_mixtral_keys, for OlmoeForCausalLM.
void add_olmoe_keys(std::vector<ConfigKey>& keys);
/// Adds keys of Qwen3MoeForCausalLM: the number of experts, their width, and the layers that have
/// some. Call after num_hidden_layers has been added to `keys`.
void add_qwen3_moe_keys(std::vector<ConfigKey>& keys);

/// Adds keys of Qwen2MoeForCausalLM: those of add_qwen3_moe_keys, and of the shared expert.
void add_qwen2_moe_keys(std::vector<ConfigKey>& keys);

/// Adds keys of GptOssForCausalLM: those of add_mixtral_keys, the limit of the activation, and
/// windows, by default in every other layer. Accepts MXFP4 in quantization_config.
void add_gpt_oss_keys(std::vector<ConfigKey>& keys);
/// Adds keys of DeepseekV3ForCausalLM: latent attention, with its own keys of the head size, and
/// experts.
void add_deepseek_v3_keys(std::vector<ConfigKey>& keys);

/// Reports numbers of experts that contradict each other.
void check_experts(const json& file, const deck::ModelConfig& m, Complaints& complaints);

}  // namespace trireme::hugging_face
