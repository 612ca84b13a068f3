#pragma once

#include <trireme/deck/config.hpp>
#include <trireme/deck/table.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::deck {

struct FileKind;

/// A resolved deck with the place where each value was set.
struct Deck {
  Config config;
  std::string file_name;
  std::map<std::string, std::string>
      places;                 ///< "model.heads" -> "inputs/a.toml:14", for keys that were set
  std::string layout_reason;  ///< reason why layout = "auto" chose this layout; "" if it chose none

  /// Place where a value was set, such as "inputs/a.toml:14", "command line" or "default".
  std::string where(std::string_view section, std::string_view name) const;
  /// A value as errors quote it: "[model] heads = 10 (inputs/a.toml:14)".
  std::string cite(std::string_view section, std::string_view name) const;
};

/// The sections and keys of a deck.
const FileKind& deck_kind();

/// Reads a deck and applies overrides "section.key=value"; the last override of a key wins. `path`
/// may be the folder of a run or of a checkpoint, which holds deck.toml. The folder of a run may
/// have been moved: it becomes run.directory, unless an override sets this key. Throws a UsageError
/// with the mistakes and their places.
Deck load_deck(const std::string& path, const std::vector<std::string>& overrides = {});

/// Like load_deck, for text in memory, which errors call `file_name`.
Deck parse_deck(std::string_view content, const std::string& file_name,
                const std::vector<std::string>& overrides = {});

/// The text of a deck with the values of all keys, which read back exactly. Omits keys that layout
/// = "auto" has not chosen yet.
std::string resolved_toml(const Deck& deck);

/// A key whose values differ between two decks. Values are written as in a deck: strings in quotes.
struct Difference {
  std::string section;
  std::string name;
  std::string stored;
  std::string current;
  std::string place;  ///< Deck::where of the current value
  Effect effect = Effect::none;

  std::string full_name() const { return section + "." + name; }
};

/// The keys whose values differ, in the key table's order. Paths are compared as text.
std::vector<Difference> differences(const Deck& stored, const Deck& current);

/// All sections and keys as text for a terminal: `trireme help deck`.
std::string reference_text();

/// All sections and keys as Markdown: docs/deck.md.
std::string reference_markdown();

/// Effect of a [model] sequence that differs from the checkpoint's sequence, with the reason if the
/// effect is stronger than Effect::numbers.
struct SequenceEffect {
  Effect effect = Effect::numbers;
  std::string_view reason = "";
};

SequenceEffect effect_of_sequence(const ModelConfig& stored, const ModelConfig& current);

}  // namespace trireme::deck
