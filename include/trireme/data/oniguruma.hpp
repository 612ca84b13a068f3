#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::data {

/// The PCRE2 expression (UTF and UCP, newline LF) that finds the matches of `pattern` in
/// Oniguruma's syntax, in which a tokenizer.json writes its patterns. A match does not depend on
/// the text before it. UsageError with `where`, the pattern, and the construct if PCRE2 has no
/// equal: anchors to the left, look-behind, back-references, absent groups, callouts, characters
/// that fold to several ones. Syntax: Oniguruma's doc/RE, 6.9.
std::string to_pcre2(std::string_view pattern, const std::string& where);

/// Members of a PCRE2 set: the characters of a POSIX bracket (Unicode's, UTS 18). Empty if the name
/// is unknown.
std::string_view members_of_posix(std::string_view name);
/// The same for \p{name}: POSIX names, categories, binary properties; other names are scripts.
/// Empty for what is no name of a script.
std::string members_of_property(std::string_view name);

/// Whether a character from `from` to `to` folds to several characters, or may (Unicode's
/// CaseFolding.txt, status F).
bool folds_to_several(char32_t from, char32_t to);
/// Whether one character folds to these two, or to more with these two in it.
bool folds_from_one(char32_t first, char32_t second);

/// A set of characters in PCRE2's syntax.
struct CharacterSet {
  std::string text;     ///< matches one of them
  std::string members;  ///< the set within brackets; empty if that is not possible
};
/// The set of these members, or of all other characters.
CharacterSet set_of(std::string_view list, bool negated);

/// Whether a set has a character beyond U+007F.
bool matches_beyond_ascii(const std::string& set);

inline constexpr char32_t last_character = 0x10FFFF;
/// The character as PCRE2 writes it within and outside sets.
std::string pcre2_literal(char32_t c);

/// A repetition from `low` to `high` times. {5,2} is possessive.
struct Interval {
  std::int64_t low = 0;
  std::int64_t high = 0;
  bool fixed = false;  ///< {n}
};
inline constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max();

/// {n}, {n,}, {n,m} or {,m} at `at`, which moves to its end. A '{' that begins none is a literal.
std::optional<Interval> read_interval(std::string_view pattern, std::size_t& at);

}  // namespace trireme::data
