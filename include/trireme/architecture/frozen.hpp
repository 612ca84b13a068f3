#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/deck/deck.hpp>

#include <string>
#include <string_view>

/// Trained arrays: all except the arrays of [optimizer] frozen; with [adapter], the adapters and
/// the arrays of also_trained.
namespace trireme::architecture {

/// Whether a pattern matches an array's name: each of its parts between dots equals a part of the
/// name, is "*", or is a range of numbers such as "0-3"; the name may have further parts.
bool matches(std::string_view pattern, std::string_view name);

/// Whether the array with this global name is frozen.
bool is_frozen(const deck::ModelConfig& model, std::string_view name);

/// Sets ArraySpec::frozen in the operations of a block. `prefix`: prefix of its arrays' names.
void mark_frozen(LayerDescription& part, const deck::ModelConfig& model,
                 const std::string& prefix = "");

/// UsageError for a pattern that matches no array, a partly frozen product or norm, an entirely
/// frozen model, and keys that cannot be combined with frozen arrays.
void expect_trainable(const deck::Deck& deck);

}  // namespace trireme::architecture
