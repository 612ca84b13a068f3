#include <trireme/commands/bench/table.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace trireme::commands {
namespace {

/// Number of UTF-8 characters.
std::size_t width(const std::string& cell) {
  return static_cast<std::size_t>(std::ranges::count_if(
      cell, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

std::string digits(double value, int significant) {
  if (value == 0) return "0";
  const int places = significant - 1 - static_cast<int>(std::floor(std::log10(std::abs(value))));
  return places <= 0 ? with_commas(std::llround(value)) : fixed(value, std::min(places, 9));
}

}  // namespace

std::string BenchTable::str() const {
  std::vector<std::size_t> widths(lines_.front().size());
  for (const auto& line : lines_) {
    check(line.size() == widths.size(), "a line of ", line.size(), " cells in a table of ",
          widths.size());
    for (std::size_t c = 0; c < line.size(); ++c) widths[c] = std::max(widths[c], width(line[c]));
  }
  std::string out;
  for (const auto& line : lines_) {
    if (std::ranges::all_of(line, &std::string::empty)) continue;
    std::string row = "  ";
    for (std::size_t c = 0; c < line.size(); ++c) {
      const std::string gap(widths[c] - width(line[c]), ' ');
      const bool left = c == 0 || (c + 1 == line.size() && last_ == Last::words);
      row += c == 0 ? "" : "  ";
      row += left ? line[c] + gap : gap + line[c];
    }
    row.erase(row.find_last_not_of(' ') + 1);
    out += (out.empty() ? "" : "\n") + row;
  }
  return out;
}

std::string rounded(double value) {
  return digits(value, 4);
}

std::string rounded_seconds(double seconds) {
  if (seconds < 0.9995e-3) return digits(seconds * 1e6, 3) + " µs";
  if (seconds < 0.9995) return digits(seconds * 1e3, 3) + " ms";
  return digits(seconds, 3) + " s";
}

std::string rough_percent(double share) {
  return digits(share * 100, share < 0.0995 ? 2 : 3) + " %";
}

}  // namespace trireme::commands
