#pragma once

#include <trireme/deck/config.hpp>

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

/// The one table of everything a deck can say. Parsing, validation, `trireme help deck`,
/// docs/deck.md and the resolved deck all come from it; to add a key is to add one entry and one
/// member of a config struct.
namespace trireme::deck {

/// How a key is written: a duration is a string "hh:mm:ss", a choice is a string out of a few
/// words, a path is a string that names a file or folder, bytes are an integer, a whole number or a
/// string with a unit.
enum class KeyType : std::uint8_t {
  string,
  path,
  integer,
  number,
  boolean,
  duration,
  choice,
  bytes
};

/// A key's value: bool for boolean, int64 for integer and bytes, double for number and duration
/// (seconds), string for the rest.
using Value = std::variant<bool, std::int64_t, double, std::string>;

/// The values that an integer or number may take. The bounds belong to the range unless they are
/// said to be open.
struct Range {
  std::int64_t least = std::numeric_limits<std::int64_t>::min();
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;
  bool high_open = false;
};

/// What another value means for a run that continues from a checkpoint.
enum class Effect : std::uint8_t {
  none,     ///< the numbers stay the same
  place,    ///< none: where files are says nothing about the run
  numbers,  ///< other numbers from there on
  samples,  ///< other training samples from there on
  storage,  ///< other numbers, and perhaps another type of those that checkpoints store
  batches,  ///< another number of samples in the steps before
  model     ///< another model: the checkpoint's weights are not this one's
};

/// One entry of a table, whatever its values are stored in.
struct KeyText {
  std::string section;
  std::string name;
  KeyType type = KeyType::string;
  std::string unit;                       ///< "" where there is none
  Range range;                            ///< of integers and numbers
  std::vector<std::string_view> choices;  ///< of a choice: the accepted words
  bool nonempty = false;                  ///< of strings and paths
  std::string help;                       ///< one line
  Effect effect = Effect::none;

  std::optional<Value> fallback;  ///< the value where the file is silent
  std::string rule;  ///< how that value follows from other keys, such as "4 · model.hidden"

  /// The file must give it: there is neither a value nor a rule.
  bool required() const { return !fallback && rule.empty(); }
  std::string full_name() const { return section + "." + name; }
};

/// One entry of a table whose values are stored in a C.
template <class C>
struct KeyOf : KeyText {
  std::function<void(C&)> derived;  ///< computes the value by `rule` where the file is silent
  std::function<void(C&, const Value&)> store;
  std::function<Value(const C&)> load;
};
using Key = KeyOf<Config>;

/// A section's name and one line about it.
struct Section {
  std::string name;
  std::string help;
};

/// All sections, and all keys ordered by section, in the order in which documents show them.
const std::vector<Section>& sections();
const std::vector<Key>& keys();

/// The entry of [section] name, or null.
const Key* find_key(std::string_view section, std::string_view name);

}  // namespace trireme::deck
