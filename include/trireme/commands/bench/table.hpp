#pragma once

#include <string>
#include <vector>

namespace trireme::commands {

/// Text in columns. The first column, and the last column if it contains words, are aligned left;
/// other columns are aligned right.
class BenchTable {
 public:
  enum class Last : bool { words, number };

  /// A heading with only empty cells is not printed.
  explicit BenchTable(std::vector<std::string> heading, Last last = Last::words)
      : lines_{std::move(heading)}, last_(last) {}

  /// `cells` has one entry per column of the heading.
  void add(std::vector<std::string> cells) { lines_.push_back(std::move(cells)); }
  /// Indented lines, separated by newlines, without a final newline.
  std::string str() const;

 private:
  std::vector<std::vector<std::string>> lines_;
  Last last_;
};

/// Four significant digits, and all digits before the decimal point, with commas: "12,345",
/// "12.35", "0.0001235".
std::string rounded(double value);
/// Three significant digits and a unit: "12.3 µs", "1.23 ms".
std::string rounded_seconds(double seconds);
/// A share in percent with three significant digits, or two below 10 %: "87.2 %", "9.3 %".
std::string rough_percent(double share);

}  // namespace trireme::commands
