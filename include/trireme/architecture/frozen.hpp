#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/deck/deck.hpp>

#include <string>
#include <string_view>

/// Which arrays are trained: all, without those of [optimizer] frozen; with [adapter], the adapters
/// and what also_trained names.
namespace trireme::architecture {

/// Whether a pattern names an array: each of its parts between dots is a part of the name, "*", or
/// a range of numbers such as "0-3"; the name may have further parts.
bool matches(std::string_view pattern, std::string_view name);

/// Whether the array of this global name is frozen.
bool is_frozen(const deck::ModelConfig& model, std::string_view name);

/// Sets ArraySpec::frozen of a part's operations; of a layer's arrays if they are frozen in all
/// layers.
void mark_frozen(LayerDescription& part, const deck::ModelConfig& model);
void mark_frozen_layer(LayerDescription& layer, const deck::ModelConfig& model);

/// An operation as it is in one layer: with the arrays that are frozen there.
Operation operation_in(const Operation& operation, const deck::ModelConfig& model,
                       std::int64_t layer);

/// The first part of the model with a trained array: −1 the embedding, a layer, L the head. No
/// backward pass before it is needed.
std::int64_t first_trained(const Architecture& architecture);

/// UsageError that names a pattern which matches no array, a product or norm of which only a part
/// is frozen, a model of which everything is frozen, and keys that cannot be combined with these.
void expect_trainable(const deck::Deck& deck);

}  // namespace trireme::architecture
