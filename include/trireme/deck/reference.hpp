#pragma once

#include <trireme/deck/key_file.hpp>

#include <string>

namespace trireme::deck {

/// All sections and keys of a kind of file as text for a terminal, and as Markdown tables.
std::string key_text(const FileKind& kind);
std::string key_markdown(const FileKind& kind);

/// All sections and keys of a deck as text for a terminal: `trireme help deck`.
std::string reference_text();

/// The same as the Markdown page docs/deck.md, which a test compares with this.
std::string reference_markdown();

}  // namespace trireme::deck
