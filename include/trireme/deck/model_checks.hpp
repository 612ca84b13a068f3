#pragma once

#include <trireme/deck/deck.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::deck {

/// Messages about keys of [adapter] that contradict one another or the model.
std::vector<std::string> adapter_mistakes(const Deck& deck);

/// Messages about keys of [experts] that contradict one another, the model, or parts of the deck
/// that do not support experts.
std::vector<std::string> expert_mistakes(const Deck& deck);

/// Messages about contradictions between properties of the model.
std::vector<std::string> property_mistakes(const Deck& deck);

/// Conditions on [encoder].
std::vector<std::string> encoder_mistakes(const Deck& deck);

/// Messages about keys of [vision] that contradict one another, the model, or parts of the deck
/// that do not support images.
std::vector<std::string> vision_mistakes(const Deck& deck);

/// Messages about modules that predict further tokens, and about keys that they exclude.
std::vector<std::string> module_mistakes(const Deck& deck);

/// Messages about sizes of latent attention that contradict one another, or that have no effect,
/// and about parts of the deck that do not support it.
std::vector<std::string> latent_mistakes(const Deck& deck);

/// Messages about head sizes that rotary positions do not support, and about missing or
/// contradictory keys of rotary positions for longer sequences.
std::vector<std::string> rotary_mistakes(const Deck& deck);

/// Messages about keys of [precision] that contradict precision.compute or the model.
std::vector<std::string> precision_mistakes(const Deck& deck);

/// Messages about sizes that contradict products = "fp8". Skips sizes that layout = "auto" chooses.
std::vector<std::string> fp8_mistakes(const Deck& deck);
/// Whether the model's sizes permit fp8 products with these sizes of the tensor axis and of the
/// micro-batch; true for a deck without fp8 products.
bool fp8_fits(const Config& config, std::int64_t tensor, std::int64_t micro);

/// Messages unless the special tokens are three different ids. The vocabulary must be known.
std::vector<std::string> mistakes_of_special_tokens(const Deck& deck);

/// For a model that predicts masked tokens, throws a UsageError unless the special tokens are three
/// different ids of the vocabulary. The vocabulary must be known.
void check_special_tokens(const Deck& deck);

}  // namespace trireme::deck
