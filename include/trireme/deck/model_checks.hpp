#pragma once

#include <trireme/deck/deck.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::deck {

/// Keys of [adapter] that contradict one another or the model: one message each, with the places.
std::vector<std::string> adapter_mistakes(const Deck& deck);

/// Contradictions between properties of the model, each with its remedy.
std::vector<std::string> property_mistakes(const Deck& deck);

/// Heads that cannot be rotated, and missing or contradictory keys of rotary positions for longer
/// sequences.
std::vector<std::string> rotary_mistakes(const Deck& deck);

/// Keys of [precision] that contradict precision.compute or the model: one message each, with the
/// places of both.
std::vector<std::string> precision_mistakes(const Deck& deck);

/// Sizes that contradict products = "fp8": one message each. Skips sizes that layout = "auto"
/// chooses.
std::vector<std::string> fp8_mistakes(const Deck& deck);
/// Whether this layout permits fp8 products, or the deck has none.
bool fp8_fits(const Config& config, std::int64_t tensor, std::int64_t micro);

/// Mistakes in the special tokens of a bert deck whose vocabulary is known: they must be three
/// different ids of the vocabulary.
std::vector<std::string> mistakes_of_special_tokens(const Deck& deck);

/// Throws a UsageError unless bert's special tokens are three different ids of the vocabulary,
/// which must be resolved from the token file.
void check_special_tokens(const Deck& deck);

}  // namespace trireme::deck
