#pragma once

#include <trireme/deck/deck.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::deck {

/// Place of a value of parallel.data that was 0.
inline constexpr const char* from_ranks = "from the number of ranks";

/// Keys that parameter servers cannot be combined with, and keys that need them.
std::vector<std::string> server_mistakes(const Deck& deck);

/// With servers: sets parallel.data, the number of workers, from the number of ranks if it is 0.
/// Checks that tensor · pipeline · (data + servers) is the number of ranks.
void resolve_server_axes(Deck& deck, std::int64_t ranks);

}  // namespace trireme::deck
