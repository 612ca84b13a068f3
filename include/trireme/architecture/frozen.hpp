#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/deck/deck.hpp>

#include <string>
#include <string_view>

/// Trained arrays: all except those of [optimizer] frozen; with [adapter], the adapters and the
/// arrays of also_trained.
namespace trireme::architecture {

/// Whether a pattern matches an array's name: each of its parts between dots equals a part of the
/// name, is "*", or is a range of numbers such as "0-3"; the name may have further parts.
bool matches(std::string_view pattern, std::string_view name);

/// Whether the array with this global name is frozen.
bool is_frozen(const deck::ModelConfig& model, std::string_view name);

/// Sets ArraySpec::frozen in a part's operations; in a layer only for arrays that are frozen in all
/// layers.
void mark_frozen(LayerDescription& part, const deck::ModelConfig& model);
void mark_frozen_layer(LayerDescription& layer, const deck::ModelConfig& model);

/// An operation as it is in one layer, with ArraySpec::frozen for that layer.
Operation operation_in(const Operation& operation, const deck::ModelConfig& model,
                       std::int64_t layer);

/// First part of the model with a trained array: −1 the embedding, a layer, L the head. Backward
/// passes before it are not needed.
std::int64_t first_trained(const Architecture& architecture);

/// UsageError for a pattern that matches no array, a partly frozen product or norm, an entirely
/// frozen model, and keys that cannot be combined with frozen arrays.
void expect_trainable(const deck::Deck& deck);

}  // namespace trireme::architecture
