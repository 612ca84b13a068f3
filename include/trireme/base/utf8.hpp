#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trireme {

/// Result of validating the beginning of a text.
struct Utf8Run {
  std::size_t valid = 0;    ///< number of bytes of valid, whole characters
  bool incomplete = false;  ///< the text ends within the next character
};

/// Validates UTF-8 (Unicode, table 3-7) from the beginning of `text`. If bytes follow the `valid`
/// bytes and the result is not `incomplete`, the first of these bytes is invalid.
Utf8Run utf8_run(std::string_view text);

/// The text with control characters and bytes that are not UTF-8 escaped as "\x1B", so that a
/// terminal does not interpret them. Keeps tabs and, with `lines`, line feeds.
std::string printable(std::string_view text, bool lines = false);

}  // namespace trireme
