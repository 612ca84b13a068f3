#pragma once

#include <trireme/hugging_face/format.hpp>

namespace trireme::hugging_face {

/// The family gpt as Hugging Face's GPT2LMHeadModel. The weights of its Conv1D are [in, out],
/// Trireme's are [out, in]. Files may lack the prefix "transformer." and hold the masks `attn.bias`
/// and `attn.masked_bias`.
const Format& gpt2_format();

}  // namespace trireme::hugging_face
