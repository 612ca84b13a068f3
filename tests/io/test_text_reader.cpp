// Text files, plain and gzip: a file is read to its end, or the error names it.
#include <trireme/base/check.hpp>
#include <trireme/io/input_file.hpp>

#include <support/temporary_folder.hpp>

#include <gtest/gtest.h>
#include <zlib.h>

#include <random>
#include <string>
#include <vector>

namespace trireme::io {
namespace {

using testing::read_file;
using testing::TemporaryFolder;

class TextReaderTest : public ::testing::Test {
 protected:
  std::string member(const std::string& content) {
    const auto path = folder_.file("member.gz");
    gzFile file = gzopen(path.c_str(), "wb");
    gzwrite(file, content.data(), static_cast<unsigned>(content.size()));
    gzclose(file);
    return read_file(path);
  }
  std::string text_of(const std::string& bytes, std::size_t buffer_bytes = 1000) {
    TextReader reader(path_ = folder_.write("all.gz", bytes));
    std::vector<char> buffer(buffer_bytes);
    std::string all;
    while (const std::size_t got = reader.read(buffer)) all.append(buffer.data(), got);
    return all;
  }
  void expect_error(const std::string& bytes, const std::vector<std::string>& words) {
    try {
      text_of(bytes);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      for (const std::string& word : words)
        EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(path_), std::string::npos) << error.what();
    }
  }

  TemporaryFolder folder_;
  std::string path_;
};

TEST_F(TextReaderTest, ReadsConcatenatedMembers) {
  EXPECT_EQ(text_of(member("first\n") + member("") + member("second\n")), "first\nsecond\n");
  std::mt19937 random(3);
  std::string noise(400000, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  // Members that end around the reader's 256 KiB.
  const std::string packed = member(noise);
  for (const std::size_t size : {100000u, 262100u, 262120u, 262140u, 262144u, 300000u}) {
    const std::string part = noise.substr(0, size);
    EXPECT_EQ(text_of(member(part) + packed, 7777), part + noise) << size;
  }
}

TEST_F(TextReaderTest, AcceptsZerosAtTheEnd) {
  EXPECT_EQ(text_of(member("text") + std::string(1, '\0')), "text");
  EXPECT_EQ(text_of(member("text") + std::string(600000, '\0')), "text");
}

TEST_F(TextReaderTest, RejectsTrailingBytes) {
  const std::string first = member("first"), second = member("second");
  const std::string place = "from byte " + text(first.size()) + " on";
  for (const std::string& bytes :
       {first + "X" + second, first + "X", first + "\x1F", first + std::string(1, '\0') + second,
        first + std::string(600000, '\0') + "X", first + "\x1F\x8A" + second})
    expect_error(bytes, {"trailing bytes after the gzip data", place});
}

TEST_F(TextReaderTest, RejectsDamageAndTruncation) {
  const std::string packed = member(std::string(5000, 'a') + "end");
  for (const std::size_t kept :
       {std::size_t{2}, std::size_t{9}, packed.size() - 9, packed.size() - 1})
    expect_error(packed.substr(0, kept), {"the gzip data is truncated"});
  expect_error(packed + packed.substr(0, 12), {"truncated"});
  std::string damaged = packed;
  damaged[damaged.size() - 8] ^= 1;  // in the checksum
  expect_error(damaged, {"the gzip data is damaged"});
}

TEST_F(TextReaderTest, ReadsOtherFilesAsText) {
  for (const std::string& plain : {std::string(), std::string("\x1F"), std::string("\x1F\x8A text"),
                                   std::string("text\0more", 9), std::string(300000, 'x')})
    EXPECT_EQ(text_of(plain), plain);
}

}  // namespace
}  // namespace trireme::io
