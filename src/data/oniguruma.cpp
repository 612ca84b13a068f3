// Parses a pattern in Oniguruma's syntax and writes each construct in PCRE2's syntax. All operands
// of an intersection of sets except the last become look-aheads.
#include <trireme/data/oniguruma.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/utf8.hpp>
#include <trireme/data/unicode.hpp>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace trireme::data {
namespace {

constexpr int most_groups = 100;
constexpr std::int64_t most_repeats = 65535;  // PCRE2's limit

class Translation {
 public:
  Translation(std::string_view source, const std::string& where) : in_(source), where_(where) {}

  std::string run() {
    std::string out = alternatives({});
    if (at_ < in_.size()) refuse("an unmatched parenthesis", at_);
    return out;
  }

 private:
  struct Options {
    bool ignore_case = false;
    bool dot_all = false;
    bool extended = false;
  };
  struct Atom {
    std::string text;
    bool quantifiable = true;
  };
  [[noreturn]] void refuse(std::string_view what, std::size_t from) const {
    std::size_t end = std::min(std::max(at_, from + 1), in_.size());
    while (end < in_.size() && (in_[end] & 0xC0) == 0x80) ++end;
    throw UsageError(text(where_, " = '", in_, "': ", what, " ('", in_.substr(from, end - from),
                          "' at byte ", from, ") is not supported; write the pattern without it"));
  }
  bool at_end() const { return at_ >= in_.size(); }
  bool sees(std::string_view next) const { return in_.substr(at_, next.size()) == next; }
  bool take(std::string_view next) {
    if (!sees(next)) return false;
    at_ += next.size();
    return true;
  }

  /// Parses alternatives up to the group's ')' or the end. "(?i)" within a group applies up to the
  /// group's end.
  std::string alternatives(Options options) {
    if (++levels_ > most_groups) refuse("nesting of more than 100 groups", at_);
    std::string out;
    while (skip_ignored(options), !at_end() && !sees(")")) {
      if (take("|")) {
        out += '|';
        before_ = 0;
      } else {
        Atom next = atom(options);
        quantify(next, options);
        out += next.text;
      }
    }
    --levels_;
    return out;
  }

  void skip_ignored(Options options) {
    while (!at_end()) {
      const std::size_t from = at_;
      if (take("(?#")) {
        while (!at_end() && !sees(")")) at_ += sees("\\") ? 2 : 1;
        if (!take(")")) refuse("a comment without an end", from);
      } else if (options.extended && take("#")) {
        at_ = std::min(in_.find('\n', at_), in_.size());
      } else if (options.extended && std::string_view(" \t\n\r\f").find(in_[at_]) != in_.npos) {
        ++at_;
      } else {
        return;
      }
    }
  }

  Atom atom(Options options) {
    const std::size_t from = at_;
    if (sees("(")) return group(options);
    if (sees("[")) return {bracket(options).text};
    if (sees("\\")) return escape(options);
    if (take("^")) refuse("the anchor '^'", from);
    if (take("$")) return {R"((?=\n|\z))", false};
    if (take(".")) return before_ = 0, Atom{options.dot_all ? "(?s:.)" : "[^\\n]"};
    if (is_quantifier()) refuse("a quantifier without a target", from);
    return character(next_character(in_, at_), options, from);
  }

  Atom character(char32_t c, Options options, std::size_t from) {
    if (options.ignore_case && (folds_to_several(c, c) || folds_from_one(before_, c)))
      refuse("ignoring the case of characters that fold to or from several", from);
    before_ = c;
    return {pcre2_literal(c)};
  }

  Atom group(Options options) {
    const std::size_t from = at_;
    const auto rest = [&](std::string begin, Options inside, bool quantifiable = true) {
      begin += alternatives(inside);
      if (!take(")")) refuse("a group without an end", from);
      return Atom{begin + ")", quantifiable};
    };
    if (take("(?:")) return rest("(?:", options);  // the group's literals continue the string
    before_ = 0;
    if (take("(?=")) return rest("(?=", options, false);
    if (take("(?!")) return rest("(?!", options, false);
    if (take("(?>")) return rest("(?>", options);
    if (take("(?<=") || take("(?<!")) refuse("look-behind", from);
    if (take("(?~")) refuse("an absent group", from);
    if (take("(?(")) refuse("a condition", from);
    if (take("(?{") || take("(*")) refuse("a callout", from);
    if (take("(?<") || take("(?'")) {
      const std::size_t end = in_.find(in_[at_ - 1] == '<' ? '>' : '\'', at_);
      if (end == in_.npos || end == at_) refuse("a group without a name", from);
      at_ = end + 1;
      return rest("(?:", options);
    }
    if (!take("(?")) return ++at_, rest("(?:", options);
    return option_group(options, from, rest);
  }
  template <class Rest>
  Atom option_group(Options options, std::size_t from, const Rest& rest) {
    for (bool value = true; !at_end() && !sees(":") && !sees(")"); ++at_) {
      // '-' clears `value`.
      bool* const option = sees("i")   ? &options.ignore_case
                           : sees("m") ? &options.dot_all
                           : sees("x") ? &options.extended
                                       : &value;
      if (option == &value && !sees("-")) refuse("an option other than i, m and x", from);
      *option = option != &value && value;
    }
    const std::string begin = options.ignore_case ? "(?i:" : "(?-i:";
    if (take(":")) return rest(begin, options);
    if (!take(")")) refuse("a group without an end", from);
    return {begin + alternatives(options) + ")"};
  }

  bool is_quantifier() const {
    std::size_t at = at_;
    return !at_end() &&
           (std::string_view("*+?").find(in_[at_]) != in_.npos || read_interval(in_, at));
  }

  /// Parses the quantifiers after an atom. In Oniguruma, '+' after * + ? makes them possessive, but
  /// after an interval it is another quantifier; {m,n} with m > n is possessive; {n}? is (?:…{n})?.
  void quantify(Atom& target, Options options) {
    for (bool again = false; skip_ignored(options), is_quantifier(); again = true) {
      const std::size_t from = at_;
      if (!target.quantifiable) refuse("a quantifier of an anchor", from);
      if (again) target.text = "(?:" + target.text + ")";
      if (const auto range = read_interval(in_, at_)) {
        const auto [low, high, fixed] = *range;
        if (std::max(low, high == no_limit ? low : high) > most_repeats)
          refuse("an interval of more than 65535", from);
        const std::string most = high == no_limit ? "" : std::to_string(std::max(low, high));
        target.text += text("{", std::min(low, high), ",", most, low > high ? "}+" : "}");
        if (!fixed && low <= high && take("?")) target.text += '?';
        continue;
      }
      target.text += in_[at_++];
      if (take("?"))
        target.text += '?';
      else if (take("+"))
        target.text += '+';
    }
  }

  Atom escape(Options options) {
    const std::size_t from = at_;
    if (const std::optional<CharacterSet> set = escaped_set(options, false)) {
      before_ = 0;
      return {set->text};
    }
    if (const std::optional<char32_t> c = escaped_character(false))
      return character(*c, options, from);
    before_ = 0;
    ++at_;
    if (take("R")) return {R"((?>\r\n|[\n-\r\x{85}\x{2028}\x{2029}]))"};
    if (take("N")) return {"[^\\n]"};
    if (take("O")) return {"(?s:.)"};
    if (take("z")) return {"\\z", false};
    if (take("Z")) return {R"((?=\n?\z))", false};
    const std::string_view letter = in_.substr(at_, 1);
    ++at_;
    const auto is = [&](std::string_view any) { return any.find(letter) != any.npos; };
    if (is("bB")) refuse("a word boundary", from);
    if (is("AG")) refuse("an anchor at the beginning", from);
    if (is("K")) refuse("a match that begins later", from);
    if (is("k123456789")) refuse("a back-reference", from);
    if (is("XyY")) refuse("a text segment", from);
    refuse("an escape", from);
  }

  /// The character of an escape; std::nullopt for other escapes.
  std::optional<char32_t> escaped_character(bool in_bracket) {
    const std::size_t from = at_;
    ++at_;
    if (at_end()) refuse("a backslash at the end", from);
    constexpr std::string_view names = "tnrfvae";
    constexpr std::string_view values = "\t\n\r\f\v\a\x1B";
    const char c = in_[at_];
    if (const std::size_t i = names.find(c); i != names.npos) return ++at_, values[i];
    if (in_bracket && take("b")) return U'\b';
    if (take("x{")) return number(16, 8, from, "}");
    if (take("o{")) return number(8, 11, from, "}");
    if (take("u")) return number(16, 4, from, "", 4);
    if (take("x")) return number(16, 2, from, "", 1, 0x7F);
    if (c == '0') return number(8, 3, from, "", 1, 0x7F);
    const bool letter = (c >= '1' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (!letter) return next_character(in_, at_);
    at_ = from;
    return {};
  }
  char32_t number(char32_t base, std::size_t most, std::size_t from, std::string_view end,
                  std::size_t least = 1, char32_t largest = last_character) {
    std::uint64_t value = 0;
    std::size_t digits = 0;
    for (; digits < most && !at_end(); ++digits, ++at_) {
      const std::size_t found = std::string_view("0123456789abcdefABCDEF").find(in_[at_]);
      const std::size_t digit = found > 15 && found != in_.npos ? found - 6 : found;
      if (digit >= base) break;
      value = value * base + digit;
    }
    const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
    if (digits < least || value > largest || surrogate || !take(end))
      refuse("a number of no character", from);
    return static_cast<char32_t>(value);
  }

  std::optional<CharacterSet> escaped_set(Options options, bool in_bracket) {
    if (!sees("\\")) return {};
    const std::size_t from = at_;
    const char c = at_ + 1 < in_.size() ? in_[at_ + 1] : '\0';
    const bool property = (c == 'p' || c == 'P') && in_.substr(at_ + 2, 1) == "{";
    const std::size_t kind = std::string_view("sdwhSDWH").find(c);
    if (!property && kind == in_.npos) return {};
    if (!property) {
      constexpr std::array<std::string_view, 4> names{"space", "digit", "word", "xdigit"};
      at_ += 2;
      if (options.ignore_case && in_bracket && (kind > 3 || c == 'w'))
        refuse("ignoring the case in a set of this class", from);
      const std::string list(members_of_posix(names[kind % 4]));
      return in_bracket ? set_of(list, kind > 3) : outside(list, kind > 3, options);
    }
    const std::size_t end = in_.find('}', at_);
    if (end == in_.npos) refuse("a property without an end", from);
    std::string_view name = in_.substr(at_ + 3, end - at_ - 3);
    at_ = end + 1;
    const bool negated = (c == 'P') != name.starts_with('^');
    if (name.starts_with('^')) name.remove_prefix(1);
    const std::string list = members_of_property(name);
    if (list.empty()) refuse("a property", from);
    const bool closed =
        list.find(R"(\p{)") == 0 && std::string_view("NPZ").find(list[3]) != in_.npos;
    if (options.ignore_case && in_bracket && (negated || !closed))
      refuse("ignoring the case in a set of this property", from);
    return in_bracket ? set_of(list, negated) : outside(list, negated, options);
  }
  /// Outside brackets, option i does not apply to sets, and word characters include Latin-1's
  /// superscript digits and fractions.
  static CharacterSet outside(std::string list, bool negated, Options options) {
    if (list == members_of_posix("word")) list += R"(\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";
    CharacterSet set = set_of(list, negated);
    if (options.ignore_case) set.text = "(?-i:" + set.text + ")";
    return set;
  }

  CharacterSet bracket(Options options) {
    const std::size_t from = at_++;
    if (++levels_ > most_groups) refuse("nesting of more than 100 sets", from);
    const bool negated = take("^");
    std::vector<CharacterSet> operands;
    do operands.push_back(united(options));
    while (take("&&"));
    if (!take("]")) refuse("a set without an end", from);
    --levels_;
    before_ = 0;
    const std::string list = operands.size() == 1 ? operands[0].members : "";
    if (!list.empty()) return {text(negated ? "[^" : "[", list, "]"), negated ? "" : list};
    if (options.ignore_case) refuse("ignoring the case in a set of sets", from);
    std::string all = operands.back().text;
    operands.pop_back();
    for (const CharacterSet& operand : operands) all.insert(0, "(?=" + operand.text + ")");
    if (negated) return {"(?:(?!" + all + ")(?s:.))", ""};
    return {"(?:" + all + ")", ""};
  }

  /// Parses a union of characters and sets up to "]" or "&&".
  CharacterSet united(Options options) {
    const std::size_t begin = at_;
    std::string list;
    std::string nested;
    const auto add = [&](const CharacterSet& set) {
      list += set.members;
      if (set.members.empty()) nested += set.text + "|";
    };
    while (!at_end() && (!sees("]") || at_ == begin) && !sees("&&")) {
      const std::size_t from = at_;
      if (sees("]"))
        refuse(in_[from - 1] == '&' ? "an empty set" : "an unescaped ']' at the beginning of a set",
               from);
      if (sees("[:")) {
        add(posix(options));
      } else if (sees("[")) {
        const CharacterSet inner = bracket(options);
        // Oniguruma does not complement the set of all non-ASCII characters.
        if (in_[from + 1] == '^' && !matches_beyond_ascii(inner.text))
          refuse("a nested set of no character beyond ASCII", from);
        add(inner);
      } else if (const std::optional<CharacterSet> set = escaped_set(options, true)) {
        add(*set);
      } else if (sees("-") && from != begin && !sees("-]")) {
        refuse("an unescaped '-' after a range or class", from);
      } else {
        list += range(options);
      }
    }
    if (list.empty() && nested.empty()) refuse("an empty set", begin);
    if (nested.empty()) return {"[" + list + "]", list};
    if (list.empty()) nested.pop_back();
    return {text("(?:", nested, list.empty() ? "" : "[" + list + "]", ")"), ""};
  }

  CharacterSet posix(Options options) {
    const std::size_t from = at_;
    at_ += 2;
    const bool negated = take("^");
    const std::size_t end = in_.find(":]", at_);
    const std::string list(end == in_.npos ? "" : members_of_posix(in_.substr(at_, end - at_)));
    if (list.empty()) refuse("a POSIX bracket of another name", from);
    at_ = end + 2;
    if (options.ignore_case) refuse("ignoring the case in a POSIX bracket", from);
    return set_of(list, negated);
  }

  std::string range(Options options) {
    const std::size_t from = at_;
    const char32_t low = set_character();
    char32_t high = low;
    if (sees("-") && !sees("-]")) {
      ++at_;
      if (sees("[") || sees("-") || sees("&&") || escaped_set(options, true))
        refuse("a range without an end", from);
      high = set_character();
      if (high < low) refuse("a range in descending order", from);
    }
    if (options.ignore_case && folds_to_several(low, high))
      refuse("ignoring the case of characters that fold to or from several", from);
    return high == low ? pcre2_literal(low) : text(pcre2_literal(low), "-", pcre2_literal(high));
  }
  char32_t set_character() {
    const std::size_t from = at_;
    if (at_end()) refuse("a set without an end", from);
    if (!sees("\\")) return next_character(in_, at_);
    const std::optional<char32_t> c = escaped_character(true);
    if (!c) at_ += 2, refuse("an escape in a set", from);
    return *c;
  }

  std::string_view in_;
  const std::string& where_;
  std::size_t at_ = 0;
  char32_t before_ = 0;  // previous literal in the same string; 0: none
  int levels_ = 0;
};

}  // namespace

std::string to_pcre2(std::string_view pattern, const std::string& where) {
  check_usage(utf8_run(pattern).valid == pattern.size(), where, ": is not UTF-8");
  return Translation(pattern, where).run();
}

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

/// Categories and binary properties that have the same names in Oniguruma and PCRE2.
constexpr std::string_view categories =
    " c cc cf cn co l ll lm lo lt lu m mc me mn n nd nl no p pc pd pe pf pi po ps s sc sk sm so z "
    "zl zp zs ";
constexpr std::string_view binary_properties =
    " alphabetic asciihexdigit bidicontrol dash defaultignorablecodepoint emoji emojimodifier "
    "emojimodifierbase emojipresentation extendedpictographic hexdigit idstart ideographic "
    "joincontrol lowercase math quotationmark regionalindicator softdotted uppercase "
    "variationselector xidstart ";

using Code = std::unique_ptr<pcre2_code, void (*)(pcre2_code*)>;

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

bool folds_to_several(char32_t from, char32_t to) {
  constexpr std::pair<char32_t, char32_t> ranges[]{
      {0xDF, 0xDF},     {0x130, 0x130},   {0x149, 0x149},   {0x1F0, 0x1F0},
      {0x390, 0x390},   {0x3B0, 0x3B0},   {0x587, 0x587},   {0x1E96, 0x1E9A},
      {0x1E9E, 0x1E9E}, {0x1F50, 0x1FFC}, {0xFB00, 0xFB06}, {0xFB13, 0xFB17}};
  return std::any_of(std::begin(ranges), std::end(ranges),
                     [&](const auto& range) { return from <= range.second && to >= range.first; });
}

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
  if (!code) return true;  // WordPattern reports the error
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
