#pragma once

#include <trireme/deck/deck.hpp>

#include <cstdint>
#include <string>

namespace trireme::deck {

/// Why the global batch cannot grow as [batch] ramp_start, ramp_increment and ramp_samples say, and
/// what would fit; empty if it can. Every size must be a multiple of micro · `data`, as `global`
/// must already be; data is 0 where it is not known yet: then of micro.
std::string ramp_mistake(const Deck& deck, std::int64_t data);

}  // namespace trireme::deck
