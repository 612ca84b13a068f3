#include <trireme/base/check.hpp>
#include <trireme/data/megatron_file.hpp>
#include <trireme/data/token_source.hpp>

#include <support/temporary_folder.hpp>

#include "support.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

namespace trireme::data {
namespace {

using testing::read_file;
using testing::TemporaryFolder;

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// Writes p.idx and p.bin with sequences, two per document.
template <class Stored>
void write_pair(const TemporaryFolder& folder,
                const std::vector<std::vector<std::int32_t>>& sequences, std::uint8_t type) {
  std::string bin;
  std::string idx("MMIDIDX\0\0", 9);
  put(idx, std::uint64_t{1});
  put(idx, type);
  put(idx, std::uint64_t{sequences.size()});
  put(idx, std::uint64_t{sequences.size() / 2 + 1});
  for (const auto& s : sequences) put(idx, static_cast<std::int32_t>(s.size()));
  for (const auto& s : sequences) {
    put(idx, static_cast<std::int64_t>(bin.size()));
    for (const auto id : s) put(bin, static_cast<Stored>(id));
  }
  for (std::size_t d = 0; d <= sequences.size() / 2; ++d)
    put(idx, static_cast<std::int64_t>(2 * d));
  folder.write("p.idx", idx);
  folder.write("p.bin", bin);
}

TEST(MegatronFile, ReadsTokensAndDocumentsOfAllIntegerTypes) {
  const TemporaryFolder folder;
  const auto check_type = [&]<class Stored>(Stored, std::uint8_t type, std::int64_t vocabulary) {
    const auto sequences = some_documents(40, vocabulary);
    write_pair<Stored>(folder, sequences, type);
    std::vector<std::int32_t> expected;
    for (const auto& s : sequences) expected.insert(expected.end(), s.begin(), s.end());
    for (const auto* name : {"p", "p.idx"}) {
      const auto file = open_tokens(folder.file(name), vocabulary);
      ASSERT_EQ(file->tokens(), std::ssize(expected));
      EXPECT_EQ(file->vocabulary(), vocabulary);
      EXPECT_EQ(file->documents(), 20);
      EXPECT_EQ(file->tokenizer(), "");
      std::vector<std::int32_t> tokens(expected.size());
      file->read(0, tokens);
      EXPECT_EQ(tokens, expected) << "type " << int{type};
      std::vector<std::int64_t> offsets(21);
      file->read_document_offsets(0, offsets);
      for (std::int64_t d = 0; d <= 20; ++d)
        EXPECT_EQ(offsets[static_cast<std::size_t>(d)], 2 * d * (2 * d + 1) / 2);
      file->verify();
    }
    EXPECT_THROW(open_tokens(folder.file("p"), 1)->verify(), Error)
        << "an id beyond the vocabulary";
  };
  check_type(std::uint8_t{}, 1, 256);
  check_type(std::int8_t{}, 2, 128);
  check_type(std::int16_t{}, 3, 32768);
  check_type(std::int32_t{}, 4, 100000);
  check_type(std::int64_t{}, 5, 100000);
  check_type(std::uint16_t{}, 8, 65536);
  EXPECT_TRUE(tokens_exist(folder.file("p")));
  EXPECT_FALSE(tokens_exist(folder.file("q")));
}

TEST(MegatronFile, FingerprintDependsOnTheContent) {
  const TemporaryFolder folder;
  const auto fingerprint = [&](int documents, std::int64_t vocabulary) {
    write_pair<std::uint16_t>(folder, some_documents(documents, vocabulary), 8);
    return open_tokens(folder.file("p"), vocabulary)->fingerprint();
  };
  const std::string one = fingerprint(200, 500);  // 40,200 bytes of tokens
  EXPECT_EQ(fingerprint(200, 500), one);
  EXPECT_NE(fingerprint(200, 400), one);
  EXPECT_NE(fingerprint(202, 500), one);
  EXPECT_NE(fingerprint(4, 500), fingerprint(4, 400));  // shorter than a block
}

TEST(MegatronFile, NamesAnIdOutsideTheVocabulary) {
  const TemporaryFolder folder;
  write_pair<std::int32_t>(folder, {{1, 2}, {3, -4}}, 4);
  std::vector<std::int32_t> ids(4);
  const MegatronFile file(folder.file("p"), 3);
  file.read(0, std::span(ids).first(2));
  expect_mentions(message_of([&] { file.read(0, std::span(ids).first(3)); }),
                  {"p.bin", "token id 3", "vocabulary of 3"});
  expect_mentions(message_of([&] { MegatronFile(folder.file("p"), 0).read(0, ids); }),
                  {"p.bin", "token id -4"});
  EXPECT_THROW(file.read(1, ids), Error);
}

TEST(MegatronFile, DetectsDamageAnywhere) {
  const TemporaryFolder folder;
  write_pair<std::uint16_t>(folder, some_documents(20, 500), 8);
  const std::string idx = read_file(folder.file("p.idx"));
  const std::string bin = read_file(folder.file("p.bin"));
  const auto message = [&] {
    return message_of([&] { MegatronFile(folder.file("p"), 500).verify(); });
  };
  EXPECT_EQ(message(), "no error");
  // Other ascending first sequences of documents are a valid file.
  const std::size_t documents_begin = 34 + 20 * 12;
  for (std::size_t at = 0; at < idx.size(); ++at) {
    std::string damaged = idx;
    damaged[at] = static_cast<char>(damaged[at] ^ (at % 3 == 0 ? 0x01 : 0x80));
    folder.write("p.idx", damaged);
    const std::string found = message();
    if (at < documents_begin || damaged[at] < 0) expect_mentions(found, {"p."});
  }
  for (std::size_t size = 0; size < idx.size(); size += 11) {
    folder.write("p.idx", idx.substr(0, size));
    expect_mentions(message(), {"p.idx"});
  }
  folder.write("p.idx", idx + std::string(20, '\0'));
  expect_mentions(message(), {"p.idx", "multimodal"});
  folder.write("p.idx", idx);
  for (const std::size_t cut : {1u, 2u, 100u}) {
    folder.write("p.bin", bin.substr(0, bin.size() - cut));
    expect_mentions(message(), {"p."});
  }
  folder.write("p.bin", "");
  expect_mentions(message(), {"p.bin"});
  std::filesystem::remove(folder.file("p.bin"));
  expect_mentions(message(), {"p.bin"});
  folder.write("float.bin", bin);
  std::string floats = idx;
  floats[17] = 7;
  folder.write("float.idx", floats);
  expect_mentions(message_of([&] { open_tokens(folder.file("float.idx")); }), {"type 7"});
}

}  // namespace
}  // namespace trireme::data
