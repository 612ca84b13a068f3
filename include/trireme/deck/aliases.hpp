#pragma once

#include <string_view>
#include <vector>

/// The words of other programs for the keys of a deck. Errors suggest the key of such a word.
namespace trireme::deck {

/// Words of other programs for one key or section.
struct Alias {
  std::string_view name;   ///< full name of the key, "run.steps", or of the section, "run"
  std::string_view words;  ///< separated by spaces; lower case, with underscores
  /// How the value is found, for words whose value is not that of the key; "": the same value.
  std::string_view note = {};
};

/// All words for the keys and sections of a deck. A word may be in several rows.
const std::vector<Alias>& deck_aliases();

}  // namespace trireme::deck
