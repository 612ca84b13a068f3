#pragma once

#include <trireme/hugging_face/format.hpp>

namespace trireme::hugging_face {

/// The family bert as Hugging Face's BertForPreTraining, or as its BertForMaskedLM without a
/// sentence loss. Files may lack the prefix "bert.", name the parameters of LayerNorm `gamma` and
/// `beta`, hold `position_ids`, and hold a sentence head that the model does not have.
const Format& bert_format();

}  // namespace trireme::hugging_face
