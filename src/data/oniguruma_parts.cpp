// Parts of patterns: names of properties as members of PCRE2's sets, characters, intervals, and
// Oniguruma's case folding to several characters.
#include <trireme/data/oniguruma.hpp>

#include <trireme/base/check.hpp>
#include <trireme/data/unicode.hpp>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <memory>
#include <utility>

namespace trireme::data {
namespace {

using Named = std::pair<std::string_view, std::string_view>;

// Members of a PCRE2 set for \s, \w and \h. PCRE2's own \s also contains U+180E, and its own \w
// contains fewer marks.
constexpr std::string_view space_members = R"(\t-\r\x{85}\p{Z})";
constexpr std::string_view word_members = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
constexpr std::string_view hex_digit = "0-9A-Fa-f";

/// Properties whose names differ in PCRE2, by names in lower case without spaces, '-' and '_'. The
/// first `posix_names` are also the names of POSIX brackets.
constexpr Named named_sets[]{
    {"alnum", R"(\p{Alphabetic}\p{Nd})"},
    {"alpha", R"(\p{Alphabetic})"},
    {"ascii", R"(\x{0}-\x{7F})"},
    {"blank", R"(\t\p{Zs})"},
    {"cntrl", R"(\p{Cc})"},
    {"digit", R"(\p{Nd})"},
    {"lower", R"(\p{Lowercase})"},
    {"punct", R"(\p{P})"},  // differs for POSIX brackets: members_of_posix
    {"space", space_members},
    {"upper", R"(\p{Uppercase})"},
    {"word", word_members},
    {"xdigit", hex_digit},
    {"any", R"(\x{0}-\x{10FFFF})"},
    {"assigned", R"(\P{Cn})"},
    {"casedletter", R"(\p{L&})"},
    {"closepunctuation", R"(\p{Pe})"},
    {"combiningmark", R"(\p{M})"},
    {"connectorpunctuation", R"(\p{Pc})"},
    {"control", R"(\p{Cc})"},
    {"currencysymbol", R"(\p{Sc})"},
    {"dashpunctuation", R"(\p{Pd})"},
    {"decimalnumber", R"(\p{Nd})"},
    {"enclosingmark", R"(\p{Me})"},
    {"finalpunctuation", R"(\p{Pf})"},
    {"format", R"(\p{Cf})"},
    {"initialpunctuation", R"(\p{Pi})"},
    {"lc", R"(\p{L&})"},
    {"letter", R"(\p{L})"},
    {"letternumber", R"(\p{Nl})"},
    {"lineseparator", R"(\p{Zl})"},
    {"lowercaseletter", R"(\p{Ll})"},
    {"mark", R"(\p{M})"},
    {"mathsymbol", R"(\p{Sm})"},
    {"modifierletter", R"(\p{Lm})"},
    {"modifiersymbol", R"(\p{Sk})"},
    {"nonspacingmark", R"(\p{Mn})"},
    {"number", R"(\p{N})"},
    {"openpunctuation", R"(\p{Ps})"},
    {"other", R"(\p{C})"},
    {"otherletter", R"(\p{Lo})"},
    {"othernumber", R"(\p{No})"},
    {"otherpunctuation", R"(\p{Po})"},
    {"othersymbol", R"(\p{So})"},
    {"paragraphseparator", R"(\p{Zp})"},
    {"privateuse", R"(\p{Co})"},
    {"punctuation", R"(\p{P})"},
    {"separator", R"(\p{Z})"},
    {"spaceseparator", R"(\p{Zs})"},
    {"spacingmark", R"(\p{Mc})"},
    {"symbol", R"(\p{S})"},
    {"titlecaseletter", R"(\p{Lt})"},
    {"unassigned", R"(\p{Cn})"},
    {"uppercaseletter", R"(\p{Lu})"},
    {"whitespace", space_members},
};
constexpr std::size_t posix_names = 12;

/// Categories of one or two letters, and binary properties, whose names in Oniguruma and PCRE2 are
/// equal.
constexpr std::string_view categories =
    " c cc cf cn co l ll lm lo lt lu m mc me mn n nd nl no p pc pd pe pf pi po ps s sc sk sm so z "
    "zl zp zs ";
constexpr std::string_view binary_properties =
    " alphabetic asciihexdigit bidicontrol dash defaultignorablecodepoint emoji emojimodifier "
    "emojimodifierbase emojipresentation extendedpictographic hexdigit idstart ideographic "
    "joincontrol lowercase math quotationmark regionalindicator softdotted uppercase "
    "variationselector xidstart ";

using Code = std::unique_ptr<pcre2_code, void (*)(pcre2_code*)>;

/// The compiled expression; null if it does not compile.
Code compiled(const std::string& expression) {
  int error = 0;
  PCRE2_SIZE place = 0;
  return {pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                        PCRE2_UTF | PCRE2_UCP, &error, &place, nullptr),
          pcre2_code_free};
}

}  // namespace

std::string_view members_of_posix(std::string_view name) {
  if (name == "punct") return R"(\p{P}\p{S})";
  for (std::size_t i = 0; i < posix_names; ++i)
    if (named_sets[i].first == name) return named_sets[i].second;
  return {};
}

std::string members_of_property(std::string_view name) {
  std::string key;
  for (const char c : name)
    if (c != ' ' && c != '-' && c != '_')
      key += c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  for (const auto& [known, list] : named_sets)
    if (key == known) return std::string(list);
  const auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
  if (key.empty() || !std::all_of(key.begin(), key.end(), is_letter)) return {};
  const std::string spaced = " " + key + " ";
  if (categories.find(spaced) != std::string_view::npos) {
    key[0] = static_cast<char>(key[0] & ~0x20);
    return "\\p{" + key + "}";
  }
  if (binary_properties.find(spaced) != std::string_view::npos) return "\\p{" + key + "}";
  // The name of a script. From PCRE2 10.40 on, a bare name means Script_Extensions.
  const bool extensions = PCRE2_MAJOR > 10 || (PCRE2_MAJOR == 10 && PCRE2_MINOR >= 40);
  std::string script = text(extensions ? "\\p{sc:" : "\\p{", name, "}");
  return compiled(script) ? script : "";
}

/// The ranges also contain characters that do not fold to several characters.
bool folds_to_several(char32_t from, char32_t to) {
  constexpr std::pair<char32_t, char32_t> ranges[]{
      {0xDF, 0xDF},     {0x130, 0x130},   {0x149, 0x149},   {0x1F0, 0x1F0},
      {0x390, 0x390},   {0x3B0, 0x3B0},   {0x587, 0x587},   {0x1E96, 0x1E9A},
      {0x1E9E, 0x1E9E}, {0x1F50, 0x1FFC}, {0xFB00, 0xFB06}, {0xFB13, 0xFB17}};
  return std::any_of(std::begin(ranges), std::end(ranges),
                     [&](const auto& range) { return from <= range.second && to >= range.first; });
}

/// If a character folds to three characters, the function is true for the first two and for the
/// last two of these characters.
bool folds_from_one(char32_t first, char32_t second) {
  const auto is = [](char32_t c, std::u32string_view any) {
    return any.find(c) != std::u32string_view::npos;
  };
  constexpr std::u32string_view s = U"sS\u017F";
  if (is(first, s)) return is(second, s) || is(second, U"tT");
  if (is(first, U"fF")) return is(second, U"fFiIlL");
  if (first == 0x2BC) return is(second, U"nN");
  if (is(first, U"aA") && second == 0x2BE) return true;
  const bool iota = is(second, U"\u03B9\u0399\u0345\u1FBE");
  const auto is_armenian = [](char32_t c) { return c >= 0x530 && c <= 0x58F; };
  return (second >= 0x300 && second <= 0x36F) || (iota && first >= 0x370) ||
         (is_armenian(first) && is_armenian(second));
}

CharacterSet set_of(std::string_view list, bool negated) {
  if (!negated) return {text("[", list, "]"), std::string(list)};
  // The complement of \p{X} is \P{X}, which can be a member of another set.
  const bool one = list.size() > 4 && list[0] == '\\' && (list[1] == 'p' || list[1] == 'P') &&
                   list.find('}') == list.size() - 1;
  std::string other(list);
  if (one) other[1] = list[1] == 'p' ? 'P' : 'p';
  return {text("[^", list, "]"), one ? other : ""};
}

bool matches_beyond_ascii(const std::string& set) {
  const Code code = compiled(set);
  if (!code) return true;  // reported when the whole pattern is compiled
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> match(
      pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  constexpr char32_t first = 0x80, first_surrogate = 0xD800, last_surrogate = 0xDFFF;
  std::string characters;
  for (char32_t c = first; c <= last_character; ++c) {
    if (c < first_surrogate || c > last_surrogate) append_character(c, characters);
    if (c % 4096 != 4095) continue;
    if (pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(characters.data()), characters.size(),
                    0, PCRE2_NO_UTF_CHECK, match.get(), nullptr) >= 0)
      return true;
    characters.clear();
  }
  return false;
}

std::string pcre2_literal(char32_t c) {
  if (c < ' ' || c == 0x7F) {
    constexpr std::string_view digits = "0123456789ABCDEF";
    return text("\\x{", digits[c >> 4], digits[c & 15], "}");
  }
  const bool plain = c > '~' || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
                     (c >= 'a' && c <= 'z') || c == '_';
  return plain ? utf8_of(c) : "\\" + utf8_of(c);
}

std::optional<Interval> read_interval(std::string_view pattern, std::size_t& at) {
  std::size_t next = at;
  const auto take = [&](char c) {
    const bool found = next < pattern.size() && pattern[next] == c;
    next += found ? 1 : 0;
    return found;
  };
  const auto number = [&]() -> std::optional<std::int64_t> {
    std::int64_t value = 0;
    const char* begin = pattern.data() + next;
    const auto [end, error] = std::from_chars(begin, pattern.data() + pattern.size(), value);
    if (end == begin || *begin == '-') return {};
    next += static_cast<std::size_t>(end - begin);
    return error == std::errc() ? value : no_limit - 1;
  };
  if (!take('{')) return {};
  const auto low = number();
  const bool fixed = !take(',');
  const auto high = fixed ? low : number();
  if ((!low && !high) || !take('}')) return {};
  at = next;
  return Interval{low.value_or(0), high.value_or(no_limit), fixed};
}

}  // namespace trireme::data
