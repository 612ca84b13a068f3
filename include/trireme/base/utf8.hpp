#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trireme {

/// The result of validating a text from some place on.
struct Utf8Run {
  std::size_t valid = 0;    ///< bytes of whole characters
  bool incomplete = false;  ///< the text ends within the next character
};

/// Well-formed UTF-8 (Unicode, table 3-7: no overlong forms, no surrogates, up to U+10FFFF) at the
/// beginning of `text`. Unless all bytes are valid or the rest is incomplete, byte
/// `valid` is in no character.
Utf8Run utf8_run(std::string_view text);

/// The text with control characters and bytes that are not UTF-8 as "\x1B", so that a terminal
/// shows them and does not obey them. Tabs and, with `lines`, line feeds stay.
std::string printable(std::string_view text, bool lines = false);

}  // namespace trireme
