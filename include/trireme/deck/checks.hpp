#pragma once

#include <trireme/deck/deck.hpp>
#include <trireme/deck/diagnostics.hpp>

#include <cstdint>
#include <set>
#include <string>

namespace trireme::deck {

/// What several keys must fulfil together, and what this version can do. A check that reads a key
/// of `invalid`
/// ("section.key": already reported) is left out.
void cross_check(const Deck& deck, const std::set<std::string>& invalid, Diagnostics& diagnostics);

/// Fills parallel.data from the number of ranks where it is 0, and checks that tensor · pipeline ·
/// data are all ranks and that micro · data divides every global batch. Throws a UsageError with
/// all factors and what would fit.
void resolve_parallel(Deck& deck, std::int64_t ranks);

}  // namespace trireme::deck
