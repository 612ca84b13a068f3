#include <trireme/base/check.hpp>
#include <trireme/data/token_file.hpp>
#include <trireme/io/hdf5_file.hpp>

#include <support/temporary_folder.hpp>

#include "support.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <random>
#include <set>
#include <vector>

namespace trireme::data {
namespace {

using testing::read_file;
using testing::TemporaryFolder;

TEST(TokenFile, RoundTripsTokensOfBothWidths) {
  const TemporaryFolder folder;
  for (const std::int64_t vocabulary : {1, 257, 65536, 65537, 1 << 30}) {
    const auto path = folder.file("t.h5");
    const auto expected = write_token_file(path, 300, vocabulary);
    const TokenFile file(path);
    EXPECT_EQ(file.tokens(), std::ssize(expected));
    EXPECT_EQ(file.vocabulary(), vocabulary);
    EXPECT_EQ(file.documents(), 300);
    EXPECT_EQ(file.text_bytes(), 3000);
    EXPECT_EQ(file.tokenizer(), "test");
    EXPECT_EQ(file.sources(), "a.txt\nb.txt");
    EXPECT_EQ(file.header().token_bytes, vocabulary <= 65536 ? 2u : 4u);
    std::vector<std::int32_t> tokens(expected.size());
    file.read(0, tokens);
    EXPECT_EQ(tokens, expected);
    std::vector<std::int64_t> offsets(301);
    file.read_document_offsets(0, offsets);
    for (std::int64_t d = 0; d <= 300; ++d)
      EXPECT_EQ(offsets[static_cast<std::size_t>(d)], d * (d + 1) / 2);
    file.verify();
    EXPECT_EQ(files_in(folder), 1) << "temporary files are left behind";
  }
}

TEST(TokenFile, IsAnHdf5FileWithTheSameContent) {
  const TemporaryFolder folder;
  const auto path = folder.file("t.h5");
  const auto expected = write_token_file(path, 50, 257);
  const auto file = io::Hdf5File::open(path);
  const auto tokens = file.dataset("tokens");
  EXPECT_EQ(tokens.dtype(), DType::uint16);
  EXPECT_TRUE(tokens.contiguous());
  ASSERT_EQ(tokens.shape(), std::vector<std::int64_t>{std::ssize(expected)});
  EXPECT_EQ(tokens.file_offset(), TokenFile(path).header().tokens_begin);
  std::vector<std::uint16_t> stored(expected.size());
  const std::int64_t first = 0;
  tokens.read({&first, 1}, tokens.shape(), stored.data());
  EXPECT_TRUE(std::equal(stored.begin(), stored.end(), expected.begin(), expected.end()));
  EXPECT_EQ(file.dataset("document_offsets").shape(), std::vector<std::int64_t>{51});
  EXPECT_EQ(file.string_attribute("tokenizer"), "test");
  EXPECT_EQ(file.integer_attribute("vocabulary"), 257);
  EXPECT_EQ(std::system(("h5dump -H " + path + " > " + folder.file("dump")).c_str()), 0);
  expect_mentions(read_file(folder.file("dump")), {"DATASET \"tokens\"", "H5T_STD_U16LE"});
}

TEST(TokenFile, EqualInputGivesEqualBytes) {
  const TemporaryFolder folder;
  write_token_file(folder.file("a.h5"), 100, 257);
  write_token_file(folder.file("b.h5"), 100, 257);
  EXPECT_EQ(read_file(folder.file("a.h5")), read_file(folder.file("b.h5")));
}

/// Tokens, borders of documents and mask define the samples; sources and path do not.
TEST(TokenFile, FingerprintCoversTheTrainingData) {
  const TemporaryFolder folder;
  const auto fingerprint = [&](const std::vector<std::vector<std::int32_t>>& documents,
                               const std::vector<bool>& counts, const std::string& sources) {
    const auto path = folder.file("t.h5");
    TokenFileWriter writer(path, "test", 300);
    for (std::size_t d = 0; d < documents.size(); ++d) {
      if (counts.empty())
        writer.append(documents[d]);
      else
        writer.append(documents[d], counts[d]);
      writer.end_document(10);
    }
    writer.commit(sources);
    return TokenFile(path).fingerprint();
  };
  const std::string one = fingerprint({{1, 2}, {3, 4, 5}}, {}, "a.txt");
  EXPECT_EQ(one.size(), 32u);
  EXPECT_EQ(fingerprint({{1, 2}, {3, 4, 5}}, {}, "elsewhere/b.txt"), one);
  const std::set<std::string> all{one,
                                  fingerprint({{1, 2}, {3, 4, 6}}, {}, "a.txt"),
                                  fingerprint({{1, 2, 3}, {4, 5}}, {}, "a.txt"),
                                  fingerprint({{1, 2}, {3, 4, 5}, {6}}, {}, "a.txt"),
                                  fingerprint({{3, 4, 5}, {1, 2}}, {}, "a.txt"),
                                  fingerprint({{1, 2}, {3, 4, 5}}, {false, true}, "a.txt"),
                                  fingerprint({{1, 2}, {3, 4, 5}}, {true, false}, "a.txt")};
  EXPECT_EQ(all.size(), 7u);
}

TEST(TokenFile, DetectsAFlippedByteAnywhere) {
  const TemporaryFolder folder;
  const auto path = folder.file("t.h5");
  write_token_file(path, 60, 257);
  const std::string whole = read_file(path);
  const TokenHeader header = TokenFile(path).header();
  for (std::size_t at = 0; at < whole.size(); at += at < 200 ? 1 : 37) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    folder.write("t.h5", damaged);
    const std::string message = message_of([&] { TokenFile(path).verify(); });
    expect_mentions(message, {path});
    const auto byte = static_cast<std::int64_t>(at);
    if (byte >= header.tokens_begin && byte < header.tokens_end())
      expect_mentions(message, {"dataset 'tokens' is damaged"});
  }
}

TEST(TokenFile, RejectsTruncatedExtendedAndForeignFiles) {
  const TemporaryFolder folder;
  const auto path = folder.file("t.h5");
  write_token_file(path, 60, 257);
  const std::string whole = read_file(path);
  for (const std::size_t bytes : {4096u, 5000u, static_cast<unsigned>(whole.size() - 1)}) {
    folder.write("t.h5", whole.substr(0, bytes));
    expect_mentions(message_of([&] { TokenFile{path}; }), {path, "truncated"});
  }
  folder.write("t.h5", whole + "x");
  expect_mentions(message_of([&] { TokenFile{path}; }), {path, "its header says"});
  for (const std::string content : {"", "some text", "TRIREME TOKENS\n"}) {
    folder.write("t.h5", content);
    expect_mentions(message_of([&] { TokenFile{path}; }), {path});
  }
  EXPECT_THROW(TokenFile(folder.file("missing.h5")), UsageError);
  EXPECT_THROW(TokenFile(folder.path().string()), UsageError);
}

TEST(TokenFile, RejectsIdsOutsideTheVocabulary) {
  const TemporaryFolder folder;
  const auto path = folder.file("t.h5");
  write_token_file(path, 60, 257);
  std::string bytes = read_file(path);
  const TokenHeader header = TokenFile(path).header();
  const std::uint16_t id = 300;
  std::memcpy(bytes.data() + header.tokens_begin + 2 * 100, &id, sizeof id);
  folder.write("t.h5", bytes);
  const TokenFile file(path);
  std::vector<std::int32_t> window(50);
  file.read(0, window);
  expect_mentions(message_of([&] { file.read(90, window); }), {path, "300", "257", "90 to 139"});
}

TEST(TokenFile, RejectsReadsOutsideTheFile) {
  const TemporaryFolder folder;
  const auto path = folder.file("t.h5");
  write_token_file(path, 10, 257);  // 55 tokens
  const TokenFile file(path);
  std::vector<std::int32_t> window(5);
  file.read(50, window);
  EXPECT_THROW(file.read(51, window), Error);
  EXPECT_THROW(file.read(-1, window), Error);
  EXPECT_THROW(file.read(INT64_MAX, window), Error);
}

/// Random damage, half of it with a valid header digest, ends in an error or a correct
/// read, never in a crash.
TEST(TokenFile, SurvivesMutations) {
  const TemporaryFolder folder;
  const auto path = folder.file("t.h5");
  write_token_file(path, 40, 257);
  const std::string whole = read_file(path);
  std::mt19937_64 random(11);
  int read = 0;
  for (int trial = 0; trial < 500; ++trial) {
    std::string bytes = whole;
    const auto changes = 1 + random() % 4;
    for (std::uint64_t c = 0; c < changes; ++c) {
      const auto span = random() % 3 == 0 ? bytes.size() : 160;  // mostly the header's fields
      bytes[random() % span] = static_cast<char>(random());
    }
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    if (trial % 2 == 0 && bytes.size() >= sizeof(TokenHeader)) {
      TokenHeader header;
      std::memcpy(&header, bytes.data(), sizeof header);
      std::memcpy(header.magic, token_magic, sizeof token_magic);
      seal(header);
      std::memcpy(bytes.data(), &header, sizeof header);
    }
    folder.write("t.h5", bytes);
    try {
      const TokenFile file(path);
      file.verify();
      EXPECT_EQ(file.sources(), "a.txt\nb.txt");  // through HDF5
      ++read;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
    }
  }
  EXPECT_LT(read, 250);
}

TEST(TokenFileWriter, KeepsOnlyThePreviousFileOnError) {
  const TemporaryFolder folder;
  const auto path = folder.write("t.h5", "former");
  {
    TokenFileWriter writer(path, "test", 257);
    const std::vector<std::int32_t> bad{1, 257};
    expect_mentions(message_of([&] { writer.append(bad); }), {path, "257"});
    const std::vector<std::int32_t> negative{-1};
    expect_mentions(message_of([&] { writer.append(negative); }), {path, "-1"});
    EXPECT_THROW(writer.commit(""), UsageError);
  }
  EXPECT_EQ(read_file(path), "former");
  EXPECT_EQ(files_in(folder), 1);
  EXPECT_THROW(TokenFileWriter(folder.file("missing/t.h5"), "test", 257), UsageError);
}

TEST(TokenFileWriter, TruncatesLongSourcesAtALine) {
  const TemporaryFolder folder;
  std::string sources;
  for (int i = 0; i < 10000; ++i) sources += text("file", i, ".txt\n");
  TokenFileWriter writer(folder.file("t.h5"), "test", 257);
  const std::vector<std::int32_t> tokens{1, 2};
  writer.append(tokens);
  writer.end_document(2);
  writer.commit(sources);
  const std::string kept = TokenFile(folder.file("t.h5")).sources();
  EXPECT_LT(kept.size(), 33000u);
  EXPECT_TRUE(kept.ends_with(".txt\n..."));
}

}  // namespace
}  // namespace trireme::data
