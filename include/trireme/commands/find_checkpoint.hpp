#pragma once

#include <trireme/deck/deck.hpp>

#include <string>

namespace trireme::commands {

/// The checkpoint folder `where`, or for "latest" the newest intact checkpoint in the deck's
/// directory. UsageError if there is none.
std::string find_checkpoint(const deck::Deck& deck, const std::string& where);

/// UsageError if the checkpoint that [checkpoint] restart names does not exist, or if restart is
/// "none" although the directory contains an imported model.
void expect_restart(const deck::Deck& deck);

}  // namespace trireme::commands
