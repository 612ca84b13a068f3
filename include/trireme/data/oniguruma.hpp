#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::data {

/// The PCRE2 expression (UTF and UCP, newline LF) that matches the same text as `pattern` in
/// Oniguruma's syntax, the syntax of patterns in a tokenizer.json. A match does not depend on the
/// text before it. UsageError with `where`, the pattern, and the construct if PCRE2 has no
/// equivalent: anchors to the left, look-behind, back-references, absent groups, callouts,
/// characters that fold to several characters. Syntax: Oniguruma's doc/RE, 6.9.
std::string to_pcre2(std::string_view pattern, const std::string& where);

/// Members of a PCRE2 set for a POSIX bracket (with Unicode's definition, UTS 18). Empty if the
/// name is unknown.
std::string_view members_of_posix(std::string_view name);
/// Members of a PCRE2 set for \p{name}: POSIX names, categories, binary properties; other names are
/// scripts. Empty if the name cannot be a script.
std::string members_of_property(std::string_view name);

/// Whether a character from `from` to `to` folds, or may fold, to several characters (Unicode's
/// CaseFolding.txt, status F).
bool folds_to_several(char32_t from, char32_t to);
/// Whether one character folds to a sequence that contains these two characters.
bool folds_from_one(char32_t first, char32_t second);

/// A set of characters in PCRE2's syntax.
struct CharacterSet {
  std::string text;     ///< expression that matches one of the characters
  std::string members;  ///< the set within brackets; empty if it cannot be written so
};
/// The set of these members, or its complement.
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
  bool fixed = false;  ///< written as {n}
};
inline constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max();

/// Reads {n}, {n,}, {n,m} or {,m} at `at` and moves `at` to its end. Any other '{' is a literal.
std::optional<Interval> read_interval(std::string_view pattern, std::size_t& at);

}  // namespace trireme::data
