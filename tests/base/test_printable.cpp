#include <trireme/base/utf8.hpp>

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(Printable, EscapesControlCharactersAndKeepsText) {
  EXPECT_EQ(printable("a\x1b[31mb\x07\r\x7f"), "a\\x1B[31mb\\x07\\x0D\\x7F");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("data 2 · pipeline 1, 試験 🙂"), "data 2 · pipeline 1, 試験 🙂");
  EXPECT_EQ(printable("a\tb\nc"), "a\tb\\x0Ac");
  EXPECT_EQ(printable("a\tb\nc", true), "a\tb\nc");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\xC2\\x9B31m")
      << "a control character of two bytes";
}

TEST(Printable, EscapesInvalidUtf8) {
  EXPECT_EQ(printable("\x9b"
                      "31m \xff \xe8\xa9"),
            "\\x9B31m \\xFF \\xE8\\xA9");
  EXPECT_EQ(printable("\xe8z"), "\\xE8z");
}

}  // namespace
}  // namespace trireme
