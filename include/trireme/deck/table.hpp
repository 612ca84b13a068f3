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

/// The table of all deck keys. Parsing, validation, `trireme help deck`, docs/deck.md and the
/// resolved deck all use it. A new key needs one entry and one member of a config struct.
namespace trireme::deck {

/// Form of a value. A duration is a string "hh:mm:ss", a choice is one of a few words, bytes are a
/// whole number or a string with a unit, and a list is an array of strings.
enum class KeyType : std::uint8_t {
  string,
  path,
  integer,
  number,
  boolean,
  duration,
  choice,
  bytes,
  list,
  integers
};

/// A key's value: bool for boolean, int64 for integer and bytes, double for number and duration
/// (seconds), a vector for list and integers, string for other types.
using Words = std::vector<std::string>;
using Integers = std::vector<std::int64_t>;
using Value = std::variant<bool, std::int64_t, double, std::string, Words, Integers>;

/// Accepted integers and bytes (`least` to `most`), and numbers (`low` to `high`).
struct Range {
  std::int64_t least = std::numeric_limits<std::int64_t>::min();
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;
  bool high_open = false;
};

/// The effect of a changed value on the use of a checkpoint. `train` and the commands that evaluate
/// a model (`eval` and `generate`; below, `eval` stands for both) reject the change, list it, or
/// accept it silently.
enum class Effect : std::uint8_t {
  none,      ///< same results; listed by `train`
  place,     ///< same results: only the location of files changes
  training,  ///< different results of later training; listed by `train`
  numbers,   ///< different results; listed by `train` and `eval`
  samples,   ///< different samples in later training; listed by `train`
  storage,   ///< as `numbers`; `train` rejects a checkpoint whose values have another type
  state,     ///< as `training`; `train` rejects a checkpoint that lacks optimizer state
  batches,   ///< other batch sizes in previous steps; rejected by `train` after step 0
  length,    ///< different length of samples; see effect_of_sequence()
  function,  ///< same weights in another function; listed by `train`, rejected by `eval`
  model,     ///< different model, which the weights do not fit; rejected by `train` and `eval`
  adapter    ///< different adapters; rejected by `train` and `eval` if the checkpoint has any
};

/// One entry of a table, without access to its values.
struct KeyText {
  std::string section;
  std::string name;
  KeyType type = KeyType::string;
  std::string unit;                       ///< "" if there is none
  Range range;                            ///< for integers, bytes, numbers and lists of integers
  std::vector<std::string_view> choices;  ///< for a choice or list: the accepted words
  bool nonempty = false;                  ///< for strings and paths
  std::string help;                       ///< one line
  Effect effect = Effect::none;

  std::optional<Value> fallback;  ///< the default value
  std::string rule;  ///< derivation of the default from other keys, such as "4 · model.hidden"

  bool often_required = false;  ///< the key must be set unless `rule` applies

  /// Whether the key must be set, because it has neither a default nor a rule.
  bool required() const { return !fallback && rule.empty(); }
  std::string full_name() const { return section + "." + name; }
};

/// One entry of a table whose values are stored in a C.
template <class C>
struct KeyOf : KeyText {
  std::function<void(C&)> derived;  ///< computes the default by `rule`
  /// With `often_required`: if the key's rule applies, stores a value and returns true. May read
  /// keys that are earlier in the table.
  std::function<bool(C&)> excused;
  std::function<void(C&, const Value&)> store;
  std::function<Value(const C&)> load;
};
using Key = KeyOf<Config>;

/// A section's name and a one-line description.
struct Section {
  std::string name;
  std::string help;
};

/// All sections, and all keys ordered by section, in the order of the documentation.
const std::vector<Section>& sections();
const std::vector<Key>& keys();

/// The entry of [section] name; null if there is none.
const Key* find_key(std::string_view section, std::string_view name);

}  // namespace trireme::deck
