#include <trireme/data/unicode.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace trireme::data {
namespace {

std::vector<std::string> graphemes(const std::string& text) {
  std::vector<std::string> found;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = grapheme_end(text, at);
    found.push_back(text.substr(at, end - at));
    at = end;
  }
  return found;
}

/// Unicode Standard Annex 29, rules GB9, GB11, GB12 and GB13.
TEST(Graphemes, PictographsJoinOverExactlyOneJoiner) {
  const std::string woman = "👩", child = "👧", joiner = "\u200D", tone = "\U0001F3FD", e = "e\u0301";
  using Parts = std::vector<std::string>;
  EXPECT_EQ(graphemes(woman + joiner + child), Parts{woman + joiner + child});
  EXPECT_EQ(graphemes(woman + tone + joiner + child + e),
            (Parts{woman + tone + joiner + child, e}));
  EXPECT_EQ(graphemes(woman + joiner + joiner + child), (Parts{woman + joiner + joiner, child}));
  EXPECT_EQ(graphemes("a" + joiner + child), (Parts{"a" + joiner, child}));
  EXPECT_EQ(graphemes("🇩🇪🇫🇷🇮"), (Parts{"🇩🇪", "🇫🇷", "🇮"}));
}

}  // namespace
}  // namespace trireme::data
