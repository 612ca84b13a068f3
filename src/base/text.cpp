// Formats numbers, sizes and times, finds similar words, and packs texts into one message.
#include <trireme/base/text.hpp>

#include <trireme/base/check.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <numeric>

namespace trireme {

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out += separator;
    out += parts[i];
  }
  return out;
}

std::string fixed(double number, int digits) {
  std::array<char, 512> buffer;
  const int length = std::snprintf(buffer.data(), buffer.size(), "%.*f", digits, number);
  return {buffer.data(), static_cast<std::size_t>(std::clamp<int>(length, 0, buffer.size() - 1))};
}

std::string human_bytes(std::int64_t bytes) {
  constexpr std::array<std::string_view, 6> units{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (std::abs(value) >= 1024 && unit + 1 < units.size()) {
    value /= 1024;
    ++unit;
  }
  if (unit == 0) return text(bytes, " B");
  const int digits = std::abs(value) < 10 ? 2 : std::abs(value) < 100 ? 1 : 0;
  return text(fixed(value, digits), " ", units[unit]);
}

std::string with_commas(std::int64_t number) {
  std::string digits = text(number < 0 ? -number : number);
  for (auto at = static_cast<std::int64_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return number < 0 ? "-" + digits : digits;
}

std::string human_seconds(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(std::max(seconds, 0.0)));
  const auto two = [](std::int64_t n) { return text(n < 10 ? "0" : "", n); };
  if (whole >= 3600) return text(whole / 3600, ":", two(whole / 60 % 60), ":", two(whole % 60));
  return text(whole / 60, ":", two(whole % 60));
}

namespace {

/// Levenshtein distance, row by row.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitution = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitution});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string percent(double share) {
  return fixed(100 * share, 1) + " %";
}

std::string padded(std::string word, std::size_t width) {
  word.resize(std::max(word.size(), width), ' ');
  return word;
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  word = word.substr(0, 64);  // keys are short: no key is near a longer word
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 2) + 1;
  for (const auto& candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string pack_texts(const std::vector<std::string>& texts) {
  std::string packed;
  for (const std::string& each : texts) packed += text(each.size(), ':', each);
  return packed;
}

std::vector<std::string> unpack_texts(std::string_view packed) {
  std::vector<std::string> texts;
  while (!packed.empty()) {
    std::size_t size = 0;
    const char* const end = packed.data() + packed.size();
    const auto [at, error] = std::from_chars(packed.data(), end, size);
    const auto rest = static_cast<std::size_t>(end - at);
    check(error == std::errc{} && rest > 0 && *at == ':' && size < rest,
          "a message of several texts is damaged");
    texts.emplace_back(at + 1, size);
    packed = packed.substr(packed.size() - rest + 1 + size);
  }
  return texts;
}

}  // namespace trireme
