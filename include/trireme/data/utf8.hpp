#pragma once

#include <cstddef>
#include <string_view>

namespace trireme::data {

/// What the bytes of a text from some place on are.
struct Utf8Run {
  std::size_t valid = 0;    ///< bytes of whole characters
  bool incomplete = false;  ///< then a character begins that the text ends in
};

/// Well-formed UTF-8 (Unicode, table 3-7: no overlong forms, no surrogates, up to U+10FFFF) at the
/// beginning of `text`. If neither all of it is valid nor incomplete, byte `valid` is in no
/// character.
Utf8Run utf8_run(std::string_view text);

}  // namespace trireme::data
