#pragma once

#include <trireme/deck/config.hpp>

namespace trireme::deck {

/// Properties of a family's published models; sizes keep their defaults.
ModelConfig preset(Family family);

/// Sets the model's family and its properties. Keeps sizes, dropout, tied_embeddings, masked_share
/// and sentence_loss.
void set_family(ModelConfig& model, Family family);

}  // namespace trireme::deck
