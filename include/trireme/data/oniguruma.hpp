#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::data {

/// Translates `pattern` from Oniguruma's syntax (doc/RE, 6.9) to a PCRE2 expression (UTF and UCP,
/// newline LF) that matches the same text. UsageError with `where`, the pattern and the construct
/// for unsupported constructs, such as look-behind and back-references.
std::string to_pcre2(std::string_view pattern, const std::string& where);

/// Members of a PCRE2 set for a POSIX bracket (UTS 18). Empty if the name is unknown.
std::string_view members_of_posix(std::string_view name);
/// Members of a PCRE2 set for \p{name}. Empty if the name is unknown.
std::string members_of_property(std::string_view name);

/// Whether any character in [from, to] folds to several characters (Unicode's CaseFolding.txt,
/// status F). Also true for some ranges without such a character.
bool folds_to_several(char32_t from, char32_t to);
/// Whether some character folds to a sequence with `first` and `second` in succession. Also true
/// for some other pairs.
bool folds_from_one(char32_t first, char32_t second);

/// A set of characters in PCRE2's syntax.
struct CharacterSet {
  std::string text;     ///< expression that matches one character of the set
  std::string members;  ///< text between the brackets of [...]; empty if the set has no such form
};
/// The set with the members `list`, or its complement.
CharacterSet set_of(std::string_view list, bool negated);

/// Whether the expression `set` matches a character beyond U+007F; true if it does not compile.
bool matches_beyond_ascii(const std::string& set);

inline constexpr char32_t last_character = 0x10FFFF;
/// The character in PCRE2's syntax, which is the same within and outside sets.
std::string pcre2_literal(char32_t c);

/// A repetition from `low` to `high` times; possessive if low > high, as in {5,2}.
struct Interval {
  std::int64_t low = 0;
  std::int64_t high = 0;
  bool fixed = false;  ///< written as {n}
};
inline constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max();

/// Reads {n}, {n,}, {n,m} or {,m} at `at`, and moves `at` to its end. std::nullopt for other text.
std::optional<Interval> read_interval(std::string_view pattern, std::size_t& at);

}  // namespace trireme::data
