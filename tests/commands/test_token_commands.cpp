#include <gtest/gtest.h>

#include <support/shell.hpp>

#include <string>

namespace trireme::commands {
namespace {

using namespace trireme::testing;

TEST(TokenCommands, TokenizeThenInspectThenDecode) {
  const TemporaryFolder folder;
  folder.write("text", "one\n\ntwo\n\nthree");
  ASSERT_EQ(shell(folder,
                  "gzip text && trireme tokenize -o t.h5 --document-separator '\\n\\n' "
                  "text.gz"),
            0);
  expect_output(folder, "t.h5: 14 tokens in 3 documents (11 bytes of text)");
  ASSERT_EQ(shell(folder, "trireme inspect --verify t.h5"), 0);
  expect_output(folder, "documents   3\n");
  expect_output(folder, "sources     text.gz\n");
  expect_output(folder, "verified ");
  ASSERT_EQ(shell(folder, "trireme inspect --decode t.h5"), 0);
  EXPECT_EQ(read_file(folder.file("out")), "onetwothree");
}

TEST(TokenCommands, DecodeStopsQuietlyWhenNobodyReads) {
  const TemporaryFolder folder;
  folder.write("text", std::string(1 << 20, 'a'));
  ASSERT_EQ(shell(folder, "trireme tokenize -o t.h5 - < text"), 0);
  ASSERT_EQ(shell(folder, "{ trireme inspect --decode t.h5; echo $? >code; } | head -c 3"), 0);
  EXPECT_EQ(read_file(folder.file("out")), "aaa");
  EXPECT_EQ(read_file(folder.file("err")), "");
  EXPECT_EQ(read_file(folder.file("code")), "0\n");
}

TEST(TokenCommands, MistakesEndWithTwoAndDamageWithOne) {
  const TemporaryFolder folder;
  EXPECT_EQ(shell(folder, "trireme tokenize -o t.h5 missing"), 2);
  expect_error(folder, "trireme: error: missing: no such file or folder");
  EXPECT_EQ(shell(folder, "trireme tokenize -o t.h5 --validation-fraction 0.1 missing"), 2);
  EXPECT_EQ(shell(folder, "trireme inspect missing"), 2);
  EXPECT_EQ(shell(folder, "trireme inspect script"), 2);
  expect_error(folder, "is not a token file");
  EXPECT_EQ(shell(folder, "trireme inspect ."), 2);
  ASSERT_EQ(shell(folder, "echo text | trireme tokenize -o t.h5 -"), 0);
  auto bytes = read_file(folder.file("t.h5"));
  bytes.pop_back();
  folder.write("t.h5", bytes);
  EXPECT_EQ(shell(folder, "trireme inspect t.h5"), 1);
  expect_error(folder, "truncated");
}

}  // namespace
}  // namespace trireme::commands
