#pragma once

#include <trireme/hugging_face/format.hpp>

namespace trireme::hugging_face {

/// The family llama as Hugging Face's LlamaForCausalLM, whose rotary positions pair elements i and
/// i + K/2 of a head as Trireme's do, so that queries and keys need no permutation. Files may lack
/// the prefix "model." and hold `rotary_emb.inv_freq`.
const Format& llama_format();

}  // namespace trireme::hugging_face
