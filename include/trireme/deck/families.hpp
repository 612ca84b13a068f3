#pragma once

#include <trireme/deck/config.hpp>

namespace trireme::deck {

/// Properties of a family's published models; sizes keep their defaults.
ModelConfig preset(Family family);

/// Sets the model's family and the properties that families preset. Keeps all other members.
void set_family(ModelConfig& model, Family family);

}  // namespace trireme::deck
