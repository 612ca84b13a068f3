#include <trireme/base/json_mistake.hpp>

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace trireme {
namespace {

TEST(JsonMistake, ReportsTheColumnAndTheMistake) {
  const std::vector<std::pair<std::string, std::string>> mistakes{
      {R"({"text":"cut \ud83d"})",
       R"(column 14: \ud83d is half of a character (a lone surrogate))"},
      {R"({"text":"\ud83dA"})", R"(column 10: \ud83d is half of a character (a lone surrogate))"},
      {R"({"text":"\ud83d\u0041"})",
       R"(column 10: \ud83d is half of a character (a lone surrogate))"},
      {R"({"text":"\uDE00"})", R"(column 10: \uDE00 is half of a character (a lone surrogate))"},
      {"{\"\xC3\xA9\":NaN}", "column 6: NaN is not a JSON number; write null or a number"},
      {R"({"a":[1,-Infinity]})",
       "column 9: -Infinity is not a JSON number; write null or a number"},
      {R"({"a":Infinity})", "column 6: Infinity is not a JSON number; write null or a number"},
      {R"({"a":1e400})", "column 6: the number 1e400 is too large"},
      {R"({"a":-1e400})", "column 6: the number -1e400 is too large"},
      {R"({"a":"cut)", "column 10: the text ends within a value"},
      {"", "column 1: the text ends within a value"},
      {"{\"a\":\"x\ty\"}",
       "column 8: a string contains a control character; write \\n, \\t or \\u00XX"},
      {R"({"a":1}{"b":2})", "column 8: unexpected '{'"},
      {R"({'a':1})", "column 2: unexpected '''"},
      {R"({"a":1,})", "column 8: unexpected '}'"},
      {"{\n  \"a\": 1,\n  \"b\": x\n}", "line 3, column 8: unexpected 'x'"}};
  for (const auto& [content, expected] : mistakes) EXPECT_EQ(json_mistake(content), expected);
}

TEST(JsonMistake, IsEmptyForValidJson) {
  for (const char* content : {R"({"a": [1e-400, 1.5, null, "\ud83d\ude00"]})", "1", "[]"})
    EXPECT_EQ(json_mistake(content), "");
}

}  // namespace
}  // namespace trireme
