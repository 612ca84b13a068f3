#pragma once

#include <trireme/data/token_model.hpp>

#include <memory>

namespace trireme::data {

/// A model of type Unigram. The names must outlive it.
std::unique_ptr<TokenModel> make_unigram_model(const JsonNode& node, TokenNames& names);

}  // namespace trireme::data
