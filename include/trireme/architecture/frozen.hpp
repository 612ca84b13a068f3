#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/deck/deck.hpp>

#include <string>
#include <string_view>
#include <vector>

/// Trained arrays are all arrays except the arrays of [optimizer] frozen. With [adapter], they are
/// only the adapters and the arrays of also_trained, without the arrays of frozen.
namespace trireme::architecture {

/// Whether a pattern matches an array's name. Each part of the pattern between dots must equal the
/// corresponding part of the name, be "*", or be a range of numbers such as "0-3" that contains it.
/// The name may have further parts. An empty pattern matches no name.
bool matches(std::string_view pattern, std::string_view name);

/// Whether the array with this global name is frozen.
bool is_frozen(const deck::ModelConfig& model, std::string_view name);

/// Sets ArraySpec::frozen in the operations of a block. `prefix`: prefix of the names of the
/// block's arrays.
void mark_frozen(BlockDescription& part, const deck::ModelConfig& model,
                 const std::string& prefix = "");

/// Factor of the learning rate of each array, in the order of Architecture::arrays, by [optimizer]
/// rate_factors. Empty if the key is: all factors are 1.
std::vector<double> rate_factors(const Architecture& architecture,
                                 const deck::OptimizerConfig& optimizer);

/// UsageError unless the deck's frozen and trained arrays can be trained.
void expect_trainable(const deck::Deck& deck);

}  // namespace trireme::architecture
