#pragma once

#include <trireme/deck/deck.hpp>

#include <cstdint>
#include <string>

namespace trireme::deck {

/// The reason why the global batch cannot grow by [batch] ramp_start, ramp_increment and
/// ramp_samples, with values that would fit; empty if it can. Every size must be a multiple of
/// micro · `data`, as `global` must already be; of micro if data is 0 (not yet known).
std::string ramp_mistake(const Deck& deck, std::int64_t data);

}  // namespace trireme::deck
