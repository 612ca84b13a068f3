#pragma once

#include <trireme/exchange/format.hpp>

namespace trireme::exchange {

/// The family bert as Hugging Face's BertForPreTraining, or without a loss of sentences as its
/// BertForMaskedLM. Files may lack the prefix "bert.", name the parameters of LayerNorm `gamma` and
/// `beta`, hold `position_ids`, and hold a sentence head that the model does not have.
const Format& bert_format();

}  // namespace trireme::exchange
