#pragma once

#include <trireme/base/check.hpp>
#include <trireme/data/token_file.hpp>
#include <trireme/data/token_file_writer.hpp>
#include <trireme/data/tokenizer.hpp>

#include <support/messages.hpp>
#include <support/source_folder.hpp>
#include <support/temporary_folder.hpp>

#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <string>
#include <vector>

namespace trireme::data {

using testing::expect_mentions;
using testing::golden_file;
using testing::message_of;

/// Documents of 1, 2, … tokens with pseudo-random ids.
inline std::vector<std::vector<std::int32_t>> some_documents(int count, std::int64_t vocabulary) {
  std::mt19937_64 random(5);
  std::vector<std::vector<std::int32_t>> documents;
  for (int d = 0; d < count; ++d) {
    documents.emplace_back();
    for (int i = 0; i <= d; ++i)
      documents.back().push_back(
          static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(vocabulary)));
  }
  return documents;
}

inline std::vector<std::int32_t> write_token_file(const std::string& path, int documents,
                                                  std::int64_t vocabulary) {
  TokenFileWriter writer(path, "test", vocabulary);
  std::vector<std::int32_t> all;
  for (const auto& document : some_documents(documents, vocabulary)) {
    writer.append(document);
    writer.end_document(10);
    all.insert(all.end(), document.begin(), document.end());
  }
  writer.commit("a.txt\nb.txt");
  return all;
}

/// A JSON text with a few random byte changes.
inline std::string mutated(std::string json, std::mt19937& random) {
  const unsigned changes = 1 + random() % 3;
  for (unsigned i = 0; i < changes; ++i) {
    const std::size_t at = random() % json.size();
    switch (random() % 4) {
      case 0:
        json[at] = static_cast<char>(random());
        break;
      case 1:
        json.erase(at, 1 + random() % 20);
        break;
      case 2:
        json.insert(at, json.substr(random() % json.size(), random() % 30));
        break;
      default:
        json[at] = "0123456789\"{}[],:-"[random() % 18];
    }
  }
  return json;
}

inline std::string decode(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
  std::string text;
  tokenizer.decode(ids, text);
  return text;
}

inline std::int64_t files_in(const testing::TemporaryFolder& folder) {
  return std::distance(std::filesystem::directory_iterator(folder.path()), {});
}

}  // namespace trireme::data
