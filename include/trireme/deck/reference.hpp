#pragma once

#include <string>

namespace trireme::deck {

/// All sections and keys as text for a terminal: `trireme help deck`.
std::string reference_text();

/// The same as the Markdown page docs/deck.md, which a test compares with this.
std::string reference_markdown();

}  // namespace trireme::deck
