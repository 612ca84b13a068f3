#pragma once

#include <trireme/deck/config.hpp>

namespace trireme::deck {

/// Properties of a family's published models; sizes keep their defaults.
ModelConfig preset(Family family);

/// Inner width of the shared expert if the deck does not set it.
std::int64_t preset_shared_feed_forward(const ModelConfig& model);

/// Sets the model's family and the properties that families preset. Keeps all other members.
void set_family(ModelConfig& model, Family family);

}  // namespace trireme::deck
