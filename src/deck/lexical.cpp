#include <trireme/deck/lexical.hpp>

#include <trireme/base/check.hpp>
#include <trireme/deck/diagnostics.hpp>
#include <trireme/deck/key_file.hpp>

#include <algorithm>

namespace trireme::deck {
namespace {

constexpr int dots_limit = 4;  // section.key needs one; toml++ limits the nesting of values

/// One pass over the characters. There are no multi-line strings, so every line starts outside a
/// string, and quotes and comments are told apart exactly.
class Scan {
 public:
  Scan(std::string_view content, const std::string& file_name, const std::string& kind)
      : content_(content), file_name_(file_name), kind_(kind) {}

  void run() {
    while (at_ < content_.size()) {
      const char c = content_[at_];
      if (c == '"' || c == '\'')
        string(c);
      else if (c == '#')
        at_ = std::min(content_.find('\n', at_), content_.size());
      else
        plain(c);
    }
  }

 private:
  void string(char quote) {
    const std::string triple(3, quote);
    if (content_.substr(at_, 3) == triple)
      refuse(text("a ", kind_, " cannot contain multi-line strings"));
    for (++at_; at_ < content_.size(); ++at_) {
      const char c = content_[at_];
      if (c == '\n') return;  // not closed: the parser reports it
      if (c == '\\' && quote == '"') {
        if (at_ + 1 < content_.size() && content_[at_ + 1] != '\n') ++at_;
      } else if (c == quote) {
        ++at_;
        return;
      }
    }
  }

  void plain(char c) {
    const bool separates = c == '\n' || c == '=' || c == ',' || c == '[' || c == '{' || c == ']';
    if (separates) dots_ = 0;
    if (c == '.' && ++dots_ > dots_limit)
      refuse("a name with too many parts; expected section.key");
    if (c == '\n') {
      ++line_;
      line_start_ = at_ + 1;
    }
    ++at_;
  }

  [[noreturn]] void refuse(const std::string& message) {
    Diagnostics diagnostics(file_name_, content_);
    diagnostics.at(line_, at_ - line_start_ + 1, message);
    diagnostics.throw_if_any();
    throw UsageError(message);
  }

  std::string_view content_;
  const std::string& file_name_;
  const std::string& kind_;
  std::size_t at_ = 0;
  std::size_t line_ = 1;
  std::size_t line_start_ = 0;
  int dots_ = 0;
};

}  // namespace

std::string shortened(std::string_view word) {
  constexpr std::size_t limit = 80;
  std::string out(word.substr(0, limit));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return word.size() > limit ? out + " ..." : out;
}

void refuse_unparsable(std::string_view content, const std::string& file_name,
                       const std::string& kind, const std::string& help) {
  check_usage(static_cast<std::int64_t>(content.size()) <= key_file_bytes_limit, file_name,
              " is larger than 1 MiB; expected a ", kind, ", a TOML file of a few lines");
  check_usage(content.find('\0') == std::string_view::npos, file_name,
              " is a binary file; expected a ", kind, " in TOML text");
  check_usage(content.find_first_not_of(" \t\r\n") != std::string_view::npos, file_name,
              " is empty; ", help);
  Scan(content, file_name, kind).run();
}

}  // namespace trireme::deck
