#pragma once

#include <trireme/deck/aliases.hpp>
#include <trireme/deck/diagnostics.hpp>
#include <trireme/deck/table.hpp>
#include <trireme/deck/value.hpp>

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

/// TOML files of `[section]` and `key = value` with a table of their keys: decks and machine files.
namespace trireme::deck {

/// A key that a word may stand for.
struct Meant {
  const KeyText* key = nullptr;
  std::string_view note;  ///< see Alias::note
};

/// A kind of key file.
struct FileKind {
  std::string name;                   ///< name in errors: "deck"
  std::string help;                   ///< "`trireme help deck` lists all keys"
  std::vector<Section> sections;      ///< in the order of the documentation
  std::vector<const KeyText*> table;  ///< ordered by section; the keys must outlive this object
  std::vector<Alias> aliases = {};    ///< names in other programs

  const KeyText* find(std::string_view section, std::string_view name) const;
  /// The keys with this name or full name, or else the keys with this alias. Ignores case and
  /// treats hyphens as underscores.
  std::vector<Meant> meant_by(std::string_view word) const;
  /// "write run.steps=10": the correct override for the keys that `word` may mean; "" if it means
  /// no key. `value`: "" if unknown.
  std::string override_for(std::string_view word, std::string_view value) const;
};

/// A FileKind with the table `keys`, which must outlive the result.
template <class C>
FileKind file_kind(const std::string& name, const std::string& help,
                   const std::vector<Section>& sections, const std::vector<KeyOf<C>>& keys) {
  FileKind kind{name, help, sections, {}, {}};
  for (const KeyOf<C>& key : keys) kind.table.push_back(&key);
  return kind;
}

/// Larger files are rejected before they are parsed.
inline constexpr std::int64_t key_file_bytes_limit = 1 << 20;

/// Content of a key file. UsageError if the file cannot be read.
std::string read_key_file(const std::string& path, const FileKind& kind);

/// Values given by a file and by overrides, by full name of the key.
struct Given {
  std::map<std::string, Value> values;
  std::map<std::string, std::string> places;  ///< "model.heads" -> "inputs/a.toml:14"
  /// Keys with an unacceptable value, and missing keys.
  std::set<std::string> invalid;
};

/// Reads `content` and then overrides "section.key=value"; the last override of a key wins. Adds
/// mistakes to `diagnostics`, but throws a UsageError at once for text that is not TOML.
Given read_keys(std::string_view content, const std::string& file_name,
                const std::vector<std::string>& overrides, const FileKind& kind,
                Diagnostics& diagnostics);

/// "a.toml: [model] heads is missing: expected ..."
std::string missing(const std::string& file_name, const KeyText& key);

/// Stores the given values, and the default or derived values of keys that are not set. Adds
/// missing required keys to `given.invalid` and `diagnostics`.
template <class C>
void store_keys(const std::vector<KeyOf<C>>& keys, const std::string& file_name, Given& given,
                C& config, Diagnostics& diagnostics) {
  for (const KeyOf<C>& key : keys) {
    const auto value = given.values.find(key.full_name());
    if (value != given.values.end()) key.store(config, value->second);
    if (given.places.contains(key.full_name())) continue;
    if (key.required() || (key.excused && !key.excused(config))) {
      given.invalid.insert(key.full_name());
      diagnostics.add(missing(file_name, key));
    } else if (key.fallback) {
      key.store(config, *key.fallback);
    }
  }
  for (const KeyOf<C>& key : keys)
    if (key.derived && !given.places.contains(key.full_name())) key.derived(config);
}

/// A value as errors quote it: "[model] heads = 10 (inputs/a.toml:14)".
std::string cite(const KeyText& key, const Value& value, const std::string& place);

/// All sections and keys as text for a terminal, not yet wrapped.
std::string key_text(const FileKind& kind);
/// One section or one key as text.
std::string section_text(const FileKind& kind, const Section& section);
std::string key_text(const KeyText& key);
/// All sections and keys as Markdown tables.
std::string key_markdown(const FileKind& kind);

/// Throws a UsageError for text that must not reach the TOML parser, such as an empty, too large or
/// binary file. Errors call the file a `kind`; `help` names the documentation of its keys.
void refuse_unparsable(std::string_view content, const std::string& file_name,
                       const std::string& kind, const std::string& help);

/// The word for an error message: cut after 80 bytes, with '?' for control characters.
std::string shortened(std::string_view word);

}  // namespace trireme::deck
