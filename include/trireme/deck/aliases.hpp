#pragma once

#include <string_view>
#include <vector>

namespace trireme::deck {

/// Names in other programs for one key or section.
struct Alias {
  std::string_view name;   ///< full name of the key, "run.steps", or of the section, "run"
  std::string_view words;  ///< separated by spaces; lower case, with underscores
  /// Conversion or words of the value, if the other program's value cannot be copied; otherwise "".
  std::string_view note = {};
};

/// All aliases of the keys and sections of a deck. A word may occur in several rows.
const std::vector<Alias>& deck_aliases();

}  // namespace trireme::deck
