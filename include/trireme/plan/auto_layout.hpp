#pragma once

#include <trireme/deck/deck.hpp>
#include <trireme/plan/machine.hpp>

#include <cstdint>

namespace trireme::plan {

/// Chooses the layout for [parallel] layout = "auto": sets the keys of deck::layout_keys() that the
/// deck does not fix, layout to "given", and the reason for the log (deck::set_layout). The
/// vocabulary must be resolved. UsageError if no layout fits the number of ranks.
void choose_layout(deck::Deck& deck, std::int64_t ranks, const Machine& machine);

}  // namespace trireme::plan
