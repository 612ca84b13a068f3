// Splitting patterns mean what they mean in Oniguruma, or are rejected by name.
#include <trireme/base/check.hpp>
#include <trireme/data/oniguruma.hpp>
#include <trireme/data/text_step.hpp>
#include <trireme/data/unicode.hpp>

#include <support/temporary_folder.hpp>

#include "support.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace trireme::data {
namespace {

using Pieces = std::vector<std::string>;
using testing::read_file;

struct Collector final : TextSink {
  Pieces all;
  bool open = false;
  void piece(std::string_view text, bool last) override {
    if (!open) all.emplace_back();
    all.back() += text;
    open = !last;
  }
};

Pieces split_pieces(const std::string& pattern, const std::string& text, std::size_t chunk_bytes) {
  TextSteps steps;
  steps.push_back(make_split_pattern(pattern, "pattern", SplitBehavior::isolated, false));
  Collector pieces;
  TextChain chain(steps, pieces);
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && (end == at || end - at < chunk_bytes)) next_character(text, end);
    chain.piece(std::string_view(text).substr(at, end - at), end == text.size());
    at = end;
  }
  return pieces.all;
}

TEST(Patterns, PiecesMatchHuggingFaceTokenizers) {
  const auto golden =
      nlohmann::json::parse(read_file(TRIREME_SOURCE_DIR "/tests/golden/patterns/golden.json"));
  for (const auto& of : golden["cases"]) {
    const std::string pattern = of["pattern"];
    for (std::size_t i = 0; i < golden["texts"].size(); ++i) {
      const std::string text = golden["texts"][i];
      const Pieces expected = of["pieces"][i];
      EXPECT_EQ(split_pieces(pattern, text, text.size()), expected) << pattern << " on " << text;
      EXPECT_EQ(split_pieces(pattern, text, 3), expected) << pattern << " in chunks on " << text;
    }
  }
}

TEST(Patterns, ReportUnsupportedConstructs) {
  const std::vector<std::pair<std::string, std::string>> rejected{
      {"a^b", "the anchor '^' ('^' at byte 1)"},
      {"\\bword", "a word boundary ('\\b' at byte 0)"},
      {"\\Aa", "an anchor at the beginning ('\\A' at byte 0)"},
      {"a\\Kb", "a match that begins later ('\\K' at byte 1)"},
      {"(?<=a)b", "look-behind ('(?<=' at byte 0)"},
      {"(?<!a)b", "look-behind ('(?<!' at byte 0)"},
      {"(?~ab)c", "an absent group"},
      {"(?(1)a|b)", "a condition"},
      {"(*FAIL)", "a callout"},
      {"(a)\\1", "a back-reference ('\\1' at byte 3)"},
      {"(?<n>a)\\k<n>", "a back-reference ('\\k' at byte 7)"},
      {"\\X", "a text segment"},
      {"\\Qa", "an escape ('\\Q' at byte 0)"},
      {"\\xE9", "a number of no character"},
      {"\\x{D800}", "a number of no character"},
      {"\\p{InBasicLatin}", "a property ('\\p{InBasicLatin}' at byte 0)"},
      {"\\p{Script=Han}", "a property"},
      {"[a-\\d]", "a range without an end"},
      {"[\\d-x]", "an unescaped '-' after a range or class ('-' at byte 3)"},
      {"[]a]", "an unescaped ']' at the beginning of a set"},
      {"[a&&]", "an empty set"},
      {"[^a[^\\D\\d]]", "a nested set of no character beyond ASCII ('[^\\D\\d]' at byte 3)"},
      {"[a[^\\x{0}-\\x{10FFFF}]]", "a nested set of no character beyond ASCII"},
      {"[a", "a set without an end"},
      {"[[:letter:]]", "a POSIX bracket of another name"},
      {"(a", "a group without an end"},
      {"a)", "an unmatched parenthesis"},
      {"{2}a", "a quantifier without a target"},
      {"(?=a)+b", "a quantifier of an anchor"},
      {"a{70000}", "an interval of more than 65535 ('{70000}' at byte 1)"},
      {"(?a:b)", "an option other than i, m and x"},
      {"(?i:ss)", "fold to or from several ('s' at byte 5)"},
      {"(?i:s(?:t))", "fold to or from several"},
      {"(?i:\xC3\x9F)", "fold to or from several ('\xC3\x9F' at byte 4)"},
      {"(?i:fi)", "fold to or from several"},
      {"(?i:i\\x{307})", "fold to or from several"},
      {"(?i:[\\x{DF}-\\x{FF}])", "fold to or from several"},
      {"(?i:[\\p{Lu}])", "ignoring the case in a set of this property"},
      {"(?i:[a&&[^b]])", "ignoring the case in a set of sets"},
      {"a*", "can match no text at all"},
      {"(?i)ab|\\z", "can match no text at all"}};
  for (const auto& [pattern, words] : rejected)
    expect_mentions(message_of([&, source = pattern] { split_pieces(source, "a", 1); }),
                    {"pattern = '" + pattern + "'", words});
}

TEST(Patterns, RejectDeepNesting) {
  const std::string open(200, '(');
  const std::string sets(200, '[');
  EXPECT_THROW(to_pcre2(open + "a" + std::string(200, ')'), "pattern"), UsageError);
  EXPECT_THROW(to_pcre2(sets + "a" + std::string(200, ']'), "pattern"), UsageError);
}

}  // namespace
}  // namespace trireme::data
