// Conversion between the text of a file or the command line, TOML values and checked Values.
#include <trireme/deck/value.hpp>

#include <trireme/base/input.hpp>
#include <trireme/base/text.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <type_traits>

namespace trireme::deck {
namespace {

constexpr std::int64_t hours_limit = 1000000;

std::string duration_text(Seconds seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  const auto two = [](std::int64_t n) { return text(n < 10 ? "0" : "", n); };
  return text(two(whole / 3600), ":", two(whole / 60 % 60), ":", two(whole % 60));
}

/// `number` of `unit` in bytes; std::nullopt if the unit is unknown, or if the result is not a
/// whole number from 0 to below 2^63.
std::optional<Bytes> whole_bytes(double number, std::string_view unit) {
  constexpr std::string_view units[] = {"B", "KiB", "MiB", "GiB", "TiB", "kB", "MB", "GB", "TB"};
  constexpr double factors[] = {1, 0x1p10, 0x1p20, 0x1p30, 0x1p40, 1e3, 1e6, 1e9, 1e12};
  const auto* const found = std::ranges::find(units, unit);
  if (found == std::end(units)) return std::nullopt;
  const double bytes = number * factors[found - std::begin(units)];
  if (!(bytes >= 0 && bytes < 0x1p63) || bytes != std::floor(bytes)) return std::nullopt;
  return static_cast<Bytes>(bytes);
}

std::optional<Bytes> parse_bytes(std::string_view written) {
  double number = 0;
  const auto [stop, error] =
      std::from_chars(written.data(), written.data() + written.size(), number);
  if (error != std::errc()) return std::nullopt;
  written.remove_prefix(static_cast<std::size_t>(stop - written.data()));
  if (written.starts_with(' ')) written.remove_prefix(1);
  return whole_bytes(number, written.empty() ? "B" : written);
}

std::optional<Value> bytes_in_range(const KeyText& key, std::optional<Bytes> bytes) {
  if (!bytes || *bytes < key.range.least || *bytes > key.range.most) return std::nullopt;
  return *bytes;
}

/// The range in words, or "" if every value is accepted.
std::string range_text(const KeyText& key) {
  const Range& range = key.range;
  const Range all;
  if (key.type == KeyType::integer || key.type == KeyType::integers) {
    if (range.most == all.most)
      return range.least == all.least ? "" : text(" of at least ", range.least);
    return text(" from ", range.least, " to ", range.most);
  }
  std::string out;
  if (range.low != all.low) out += text(range.low_open ? " above " : " of at least ", range.low);
  if (range.high != all.high)
    out +=
        text(out.empty() ? "" : " and", range.high_open ? " below " : " of at most ", range.high);
  return out;
}

bool in_range(const KeyText& key, std::int64_t value) {
  return value >= key.range.least && value <= key.range.most;
}

bool in_range(const KeyText& key, double value) {
  if (!std::isfinite(value)) return false;
  if (value < key.range.low || (key.range.low_open && value == key.range.low)) return false;
  return !(value > key.range.high || (key.range.high_open && value == key.range.high));
}

bool acceptable_string(const KeyText& key, const std::string& value) {
  if (key.nonempty && value.empty()) return false;
  return std::ranges::none_of(value, [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

std::string list_text(const Words& words) {
  std::vector<std::string> all;
  for (const std::string& word : words) all.push_back(in_quotes(word));
  return "[" + join(all, ", ") + "]";
}

std::string list_text(const Integers& integers) {
  std::vector<std::string> all;
  for (const std::int64_t integer : integers) all.push_back(text(integer));
  return "[" + join(all, ", ") + "]";
}

/// Whether the key's list may contain the word.
bool acceptable_word(const KeyText& key, const std::string& word) {
  return !word.empty() && acceptable_string(key, word) &&
         (key.choices.empty() || std::ranges::find(key.choices, word) != key.choices.end());
}

/// The words of `a,b`, or of `["a", "b"]`.
Words parse_list(std::string_view written) {
  Words words;
  if (written.starts_with('[') && written.ends_with(']'))
    written = written.substr(1, written.size() - 2);
  while (!written.empty()) {
    const std::size_t end = std::min(written.find(','), written.size());
    std::string_view word = written.substr(0, end);
    written.remove_prefix(std::min(end + 1, written.size()));
    while (word.starts_with(' ')) word.remove_prefix(1);
    while (word.ends_with(' ')) word.remove_suffix(1);
    if (word.size() >= 2 && word.starts_with('"') && word.ends_with('"'))
      word = word.substr(1, word.size() - 2);
    words.emplace_back(word);
  }
  return words;
}

/// A number as TOML writes a float.
std::string decimal(double number) {
  std::string digits = text(number);
  if (digits.find_first_of(".ein") == std::string::npos) digits += ".0";
  const std::size_t sign = digits.find("e-0");
  if (sign != std::string::npos) digits.erase(sign + 2, 1);  // "3e-04" is written 3e-4
  return digits;
}

std::string shown(const KeyText& key, const Value& value) {
  return std::visit(
      [&](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::string>)
          return text("the string ", in_quotes(v.substr(0, 80)));
        if constexpr (std::is_same_v<T, std::int64_t>) return text("the integer ", v);
        if constexpr (std::is_same_v<T, double>)
          return key.type == KeyType::number ? text("the number ", v)
                                             : "the floating-point number " + decimal(v);
        if constexpr (std::is_same_v<T, Words> || std::is_same_v<T, Integers>)
          return text("the list ", list_text(v).substr(0, 80));
        else
          return text(v);
      },
      value);
}

std::optional<Value> convert(const KeyText& key, const Value& raw) {
  const auto* string = std::get_if<std::string>(&raw);
  const auto* integer = std::get_if<std::int64_t>(&raw);
  const auto* number = std::get_if<double>(&raw);
  switch (key.type) {
    case KeyType::string:
      if (string && acceptable_string(key, *string)) return raw;
      break;
    case KeyType::path:
      if (string && acceptable_string(key, *string) && unexpanded(*string).empty()) return raw;
      break;
    case KeyType::choice:
      if (string && std::ranges::find(key.choices, *string) != key.choices.end()) return raw;
      break;
    case KeyType::integer:
      if (integer && in_range(key, *integer)) return raw;
      break;
    case KeyType::number:
      if (integer && in_range(key, static_cast<double>(*integer)))
        return static_cast<double>(*integer);
      // never stored as -0.0
      if (number && in_range(key, *number)) return *number == 0 ? 0.0 : *number;
      break;
    case KeyType::boolean:
      if (std::holds_alternative<bool>(raw)) return raw;
      break;
    case KeyType::duration:
      if (string)
        if (const auto seconds = parse_duration(*string)) return *seconds;
      break;
    case KeyType::list:
      if (const auto* words = std::get_if<Words>(&raw);
          words && std::ranges::all_of(
                       *words, [&](const std::string& w) { return acceptable_word(key, w); }))
        return raw;
      break;
    case KeyType::integers:
      if (const auto* words = std::get_if<Words>(&raw); words && words->empty()) return Integers{};
      if (const auto* all = std::get_if<Integers>(&raw);
          all && std::ranges::all_of(*all, [&](std::int64_t i) { return in_range(key, i); }))
        return raw;
      break;
    case KeyType::bytes:
      return bytes_in_range(key, integer  ? std::optional<Bytes>(*integer)
                                 : number ? whole_bytes(*number, "B")
                                 : string ? parse_bytes(*string)
                                          : std::nullopt);
  }
  return std::nullopt;
}

/// A number without underscores and leading +; "" if an underscore is not between digits.
std::string without_underscores(std::string_view written) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  std::string out;
  for (std::size_t i = 0; i < written.size(); ++i) {
    if (written[i] != '_')
      out += written[i];
    else if (i == 0 || i + 1 == written.size() || !digit(written[i - 1]) || !digit(written[i + 1]))
      return "";
  }
  return out.starts_with('+') ? out.substr(1) : out;
}

template <class T>
std::optional<T> parse_whole(const std::string& digits, std::string& remark) {
  T value{};
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  if (error == std::errc::result_out_of_range) {
    const bool tiny = !std::is_integral_v<T> && std::abs(std::strtod(digits.c_str(), nullptr)) < 1;
    remark = tiny                      ? ", which is too close to 0"
             : digits.starts_with('-') ? ", which is too small"
                                       : ", which is too large";
  }
  if (error != std::errc() || stop != end || digits.empty()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<Seconds> parse_duration(std::string_view written) {
  std::int64_t fields[3] = {};
  for (int i = 0; i < 3; ++i) {
    const std::size_t end = i < 2 ? written.find(':') : written.size();
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view digits = written.substr(0, end);
    const bool two_digits = digits.size() == 2 || (i == 0 && !digits.empty());
    const bool all_digits =
        std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; });
    if (!two_digits || !all_digits || digits.size() > 7) return std::nullopt;
    std::from_chars(digits.data(), digits.data() + digits.size(), fields[i]);
    written.remove_prefix(std::min(end + 1, written.size()));
  }
  if (fields[0] > hours_limit || fields[1] > 59 || fields[2] > 59) return std::nullopt;
  return static_cast<Seconds>(fields[0] * 3600 + fields[1] * 60 + fields[2]);
}

std::string in_quotes(std::string_view string) {
  std::string out = "\"";
  for (const char c : string) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      constexpr std::string_view digits = "0123456789ABCDEF";
      out += text("\\u00", digits[byte >> 4], digits[byte & 15]);
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string expectation(const KeyText& key) {
  switch (key.type) {
    case KeyType::string:
      return key.nonempty ? "a non-empty string" : "a string";
    case KeyType::path:
      return key.nonempty ? "a path (a non-empty string)" : "a path (a string)";
    case KeyType::integer:
      return "an integer" + range_text(key);
    case KeyType::integers:
      return "a list of integers" + range_text(key);
    case KeyType::number:
      return "a number" + range_text(key);
    case KeyType::boolean:
      return "true or false";
    case KeyType::duration:
      return "a duration such as \"01:30:00\" (hours, minutes, seconds)";
    case KeyType::bytes:
      return text("bytes", key.range.least > 0 ? " above 0" : "",
                  ", such as 80000000000, 80e9 or \"80 GiB\"");
    case KeyType::list:
      if (key.choices.empty()) return "a list of strings";
      [[fallthrough]];
    case KeyType::choice: {
      std::vector<std::string> words;
      for (const auto word : key.choices) words.push_back(in_quotes(word));
      if (key.type == KeyType::list) return "a list of " + join(words, ", ");
      return (words.size() == 1 ? "" : "one of ") + join(words, ", ");
    }
  }
  return "";
}

namespace {

/// "; did you mean ...?" with a similar choice of the key, or "; write 1000" for 1e3; otherwise "".
std::string suggestion(const KeyText& key, const Value& raw) {
  if (const auto* number = std::get_if<double>(&raw); number && key.type == KeyType::integer) {
    const bool whole = std::abs(*number) < 0x1p53 && *number == std::floor(*number);
    return whole ? text("; write ", static_cast<std::int64_t>(*number)) : "";
  }
  const auto* word = std::get_if<std::string>(&raw);
  if (const auto* words = std::get_if<Words>(&raw); words && key.type == KeyType::list)
    for (const std::string& one : *words)
      if (!acceptable_word(key, one)) word = &one;
  if ((key.type != KeyType::choice && key.type != KeyType::list) || word == nullptr) return "";
  const std::string best = nearest(*word, {key.choices.begin(), key.choices.end()});
  return best.empty() ? "" : text("; did you mean ", in_quotes(best), "?");
}

}  // namespace

std::optional<Value> accept(const KeyText& key, const Value& raw, std::string& problem) {
  auto value = convert(key, raw);
  const auto* path = key.type == KeyType::path ? std::get_if<std::string>(&raw) : nullptr;
  if (!value && path != nullptr) problem = unexpanded(*path);
  if (!value && problem.empty())
    problem =
        text("expected ", expectation(key), ", found ", shown(key, raw), suggestion(key, raw));
  return value;
}

std::optional<Value> accept_text(const KeyText& key, std::string_view written,
                                 std::string& problem) {
  const bool is_list = key.type == KeyType::list || key.type == KeyType::integers;
  const bool is_quoted =
      !is_list && written.size() >= 2 && written.front() == '"' && written.back() == '"';
  if (is_quoted) written = written.substr(1, written.size() - 2);
  std::string remark;
  switch (key.type) {
    case KeyType::string:
    case KeyType::path:
    case KeyType::choice:
    case KeyType::duration:
      return accept(key, std::string(written), problem);
    case KeyType::list:
      return accept(key, parse_list(written), problem);
    case KeyType::integers: {
      const Words words = parse_list(written);
      Integers all;
      for (const std::string& word : words)
        if (const auto value = parse_whole<std::int64_t>(without_underscores(word), remark))
          all.push_back(*value);
      if (all.size() == words.size()) return accept(key, all, problem);
      break;
    }
    case KeyType::bytes:
      if (const auto value = parse_whole<std::int64_t>(without_underscores(written), remark))
        return accept(key, *value, problem);
      return accept(key, std::string(written), problem);
    case KeyType::integer:
      if (const auto value = parse_whole<std::int64_t>(without_underscores(written), remark))
        return accept(key, *value, problem);
      break;
    case KeyType::number:
      if (const auto value = parse_whole<double>(without_underscores(written), remark))
        return accept(key, *value, problem);
      break;
    case KeyType::boolean:
      if (written == "true" || written == "false") return accept(key, written == "true", problem);
      break;
  }
  problem =
      text("expected ", expectation(key), ", found ", in_quotes(written.substr(0, 80)), remark);
  return std::nullopt;
}

std::string literal(const KeyText& key, const Value& value) {
  if (key.type == KeyType::duration) return in_quotes(duration_text(std::get<double>(value)));
  if (const auto* words = std::get_if<Words>(&value)) return list_text(*words);
  if (const auto* integers = std::get_if<Integers>(&value)) return list_text(*integers);
  if (const auto* string = std::get_if<std::string>(&value)) return in_quotes(*string);
  if (const auto* number = std::get_if<double>(&value)) return decimal(*number);
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return text(*integer);
  return text(std::get<bool>(value));
}

}  // namespace trireme::deck
