#pragma once

#include <trireme/hugging_face/format.hpp>

namespace trireme::hugging_face {

/// The families llama, qwen2, qwen3, mistral, gemma, gemma2 and gemma3 as Hugging Face's
/// LlamaForCausalLM, Qwen2ForCausalLM and so on. Their rotary positions pair elements
/// i and i + K/2 of a head like Trireme's, so queries and keys need no permutation. Files may
/// lack the prefix "model." and hold `rotary_emb.inv_freq`.
const Format& llama_format(Family family);

}  // namespace trireme::hugging_face
