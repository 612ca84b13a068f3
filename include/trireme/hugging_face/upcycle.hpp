#pragma once

#include <trireme/architecture/array_spec.hpp>
#include <trireme/deck/deck.hpp>
#include <trireme/hugging_face/config_json.hpp>
#include <trireme/hugging_face/format.hpp>

#include <cstdint>
#include <vector>

/// A model with experts from a model without (Komatsuzaki et al. 2022, arXiv 2212.05055): each
/// expert begins as a copy of the feed-forward part, and routers begin with random weights. As long
/// as the experts are equal, the weights of a token's experts sum to 1, so that the model computes
/// what the original computes.
namespace trireme::hugging_face {

/// The model of `file` with `number` experts in each layer, at most two of them active, in the
/// family with experts that has the properties of the file's family. UsageError if there is no such
/// family.
ModelFile upcycled(const ModelFile& file, std::int64_t number);

/// UsageError unless the deck's model computes what its original computes: the weights of a token's
/// experts sum to 1, and an expert is as wide as the original's feed-forward part.
void expect_upcycled(const deck::Deck& deck);

/// The tensors of the original, once for each expert that begins as their copy, with the arrays of
/// `model`, which has experts.
std::vector<Tensor> copies_for_experts(const Tensor& tensor, const deck::ModelConfig& model);

/// The initial weights of a router, as training would initialise it: in double, in the order of the
/// array. `number`: number of the array in the model, which selects its random numbers.
std::vector<double> router_weights(const architecture::ArraySpec& router, std::uint32_t number,
                                   std::uint64_t seed);

}  // namespace trireme::hugging_face
