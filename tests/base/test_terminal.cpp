#include <trireme/base/check.hpp>
#include <trireme/base/terminal.hpp>

#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>
#include <string>

namespace trireme::terminal {
namespace {

TEST(Terminal, WidthCountsCharactersNotBytes) {
  EXPECT_EQ(width("0 … 7"), 5u);
  EXPECT_EQ(width(""), 0u);
}

TEST(Terminal, KeepsLinesThatFit) {
  const std::string lines = "a  b\n\n  c d\n";
  EXPECT_EQ(wrapped(lines, 40), lines);
}

TEST(Terminal, IndentsContinuedLinesToTheSecondColumn) {
  EXPECT_EQ(wrapped("  key     one two three four five six", 32),
            "  key     one two three four\n          five six");
  EXPECT_EQ(wrapped("  one two three four five six seven", 20),
            "  one two three four\n    five six seven");
}

TEST(Terminal, ContinuationMarksFitIntoTheColumns) {
  const std::string found =
      wrapped("  trireme train a.toml run.steps=200 checkpoint.restart=latest", 40, " \\");
  EXPECT_EQ(found, "  trireme train a.toml run.steps=200 \\\n    checkpoint.restart=latest");
}

TEST(Terminal, WrapsLinesToTheColumnsExceptLongWords) {
  std::string lines;
  for (int words = 1; words < 40; ++words) {
    lines += "  name" + std::string(static_cast<std::size_t>(words % 7), ' ');
    for (int i = 0; i < words; ++i) lines += " w" + std::string(static_cast<std::size_t>(i), 'x');
    lines += "\n";
  }
  for (const std::size_t columns : {40u, 60u, 80u}) {
    std::istringstream in(wrapped(lines, columns));
    for (std::string line; std::getline(in, line);) {
      const std::size_t word = line.find_first_not_of(' ');
      EXPECT_TRUE(line.size() <= columns || line.find(' ', word) == std::string::npos) << line;
    }
  }
}

TEST(Terminal, ReadsTheColumnsVariable) {
  setenv("COLUMNS", "123", 1);
  EXPECT_EQ(columns(), 123u);
  setenv("COLUMNS", "7", 1);
  EXPECT_EQ(columns(), 40u);
  unsetenv("COLUMNS");
}

TEST(Terminal, ReadsTheProgressVariable) {
  setenv("TRIREME_PROGRESS", "rewrite", 1);
  EXPECT_TRUE(rewrites_lines());
  setenv("TRIREME_PROGRESS", "lines", 1);
  EXPECT_FALSE(rewrites_lines());
  expect_valid_variables();
  setenv("TRIREME_PROGRESS", "yes", 1);
  EXPECT_THROW(expect_valid_variables(), UsageError);
  unsetenv("TRIREME_PROGRESS");
}

}  // namespace
}  // namespace trireme::terminal
