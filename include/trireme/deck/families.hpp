#pragma once

#include <trireme/deck/config.hpp>

namespace trireme::deck {

/// The properties of a family's published models; sizes are left at their defaults.
ModelConfig preset(Family family);

/// Makes the model one of a family: sets its properties, and keeps sizes, dropout, embeddings, the
/// share of masked tokens and what is asked of pairs.
void set_family(ModelConfig& model, Family family);

}  // namespace trireme::deck
