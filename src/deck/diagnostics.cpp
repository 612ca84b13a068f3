#include <trireme/deck/diagnostics.hpp>

#include <trireme/base/check.hpp>

#include <algorithm>
#include <limits>
#include <utility>

namespace trireme::deck {
namespace {

constexpr std::size_t no_line = std::numeric_limits<std::size_t>::max();
constexpr std::size_t excerpt_limit = 100;

/// Line `number` of `content` without its line ending, cut after excerpt_limit bytes, with spaces
/// for tabs and '?' for other control characters; "" if there is no such line.
std::string line_of(std::string_view content, std::size_t number) {
  for (std::size_t i = 1; i < number; ++i) {
    const std::size_t end = content.find('\n');
    if (end == std::string_view::npos) return "";
    content.remove_prefix(end + 1);
  }
  const std::string_view whole = content.substr(0, content.find_first_of("\r\n"));
  std::string line(whole.substr(0, excerpt_limit));
  for (char& c : line) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\t')
      c = ' ';
    else if (byte < 0x20 || byte == 0x7f)
      c = '?';
  }
  return whole.size() > excerpt_limit ? line + " ..." : line;
}

bool is_ascii(std::string_view line) {
  return std::ranges::all_of(line, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

}  // namespace

Diagnostics::Diagnostics(std::string file_name, std::string_view content)
    : file_name_(std::move(file_name)), content_(content) {}

void Diagnostics::at(std::size_t line, std::size_t column, const std::string& message) {
  if (full()) {
    ++total_;
    return;
  }
  keep({line, column,
        text(file_name_, ":", line, ":", column, ": ", message, excerpt(line, column))});
}

void Diagnostics::add(const std::string& message) {
  keep({no_line, 0, message});
}

void Diagnostics::keep(Mistake mistake) {
  ++total_;
  if (!full()) mistakes_.push_back(std::move(mistake));
}

/// The source line with its number and, where possible, a caret below the column.
std::string Diagnostics::excerpt(std::size_t line, std::size_t column) const {
  const std::string shown = line_of(content_, line);
  if (shown.empty()) return "";
  const std::string number = text(line);
  std::string out = text("\n  ", number, " | ", shown);
  if (column >= 1 && column <= excerpt_limit && is_ascii(shown))
    out += text("\n  ", std::string(number.size(), ' '), " | ", std::string(column - 1, ' '), "^");
  return out;
}

void Diagnostics::throw_if_any() const {
  if (mistakes_.empty()) return;
  auto sorted = mistakes_;
  std::ranges::stable_sort(sorted, [](const Mistake& a, const Mistake& b) {
    return std::pair(a.line, a.column) < std::pair(b.line, b.column);
  });
  std::string message;
  if (total_ > 1) message = text(total_, " mistakes in ", file_name_, ":\n");
  for (std::size_t i = 0; i < sorted.size(); ++i)
    message += (i > 0 ? "\n" : "") + sorted[i].message;
  if (total_ > sorted.size()) message += text("\n... and ", total_ - sorted.size(), " more");
  throw UsageError(message);
}

}  // namespace trireme::deck
