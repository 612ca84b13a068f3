#pragma once

#include <string>
#include <vector>

namespace trireme::commands {

/// Text in columns: words to the left in the first and, where it has words, in the last one; the
/// others to the right.
class BenchTable {
 public:
  enum class Last : bool { words, number };

  /// A heading of empty cells is none.
  explicit BenchTable(std::vector<std::string> heading, Last last = Last::words)
      : lines_{std::move(heading)}, last_(last) {}

  /// As many cells as the heading has.
  void add(std::vector<std::string> cells) { lines_.push_back(std::move(cells)); }
  /// Lines, each indented, parted and not ended by newlines.
  std::string str() const;

 private:
  std::vector<std::vector<std::string>> lines_;
  Last last_;
};

/// Four significant digits, with commas: "1,234", "12.35", "0.0001235".
std::string rounded(double value);
/// Three significant digits and a unit: "12.3 µs", "1.23 ms".
std::string rounded_seconds(double seconds);
/// "87 %".
std::string percent(double share);

}  // namespace trireme::commands
