#include <trireme/base/check.hpp>
#include <trireme/base/utf8.hpp>
#include <trireme/data/bpe_merges.hpp>
#include <trireme/data/bpe_trainer.hpp>
#include <trireme/data/tokenizer.hpp>
#include <trireme/data/tokenizer_json.hpp>
#include <trireme/data/unicode.hpp>

#include <support/temporary_folder.hpp>

#include "support.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace trireme::data {
namespace {

using Ids = std::vector<std::int32_t>;
using testing::read_file;
using testing::TemporaryFolder;

std::vector<std::string> sample_documents() {
  const std::string text = read_file(golden_file("bpe/sample.txt"));
  std::vector<std::string> documents;
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find("\n\n", begin)) != std::string::npos; begin = end + 2)
    documents.push_back(text.substr(begin, end - begin));
  documents.push_back(text.substr(begin));
  return documents;
}

/// Encodes documents cut into pieces of `piece` bytes.
std::vector<Ids> encode(const Tokenizer& tokenizer, const std::vector<std::string>& documents,
                        std::size_t piece, bool special_tokens = false) {
  const auto encoder = tokenizer.encoder({special_tokens});
  std::vector<Ids> all;
  for (const auto& document : documents) {
    Ids& ids = all.emplace_back();
    for (std::size_t at = 0; at < document.size(); at += piece)
      encoder->feed(std::string_view(document).substr(at, piece), ids);
    encoder->finish(ids);
  }
  return all;
}

TEST(Bpe, IdsMatchHuggingFaceInAnyPieces) {
  const auto expected = nlohmann::json::parse(read_file(golden_file("bpe/ids.json")));
  const auto documents = sample_documents();
  ASSERT_EQ(documents.size(), 15u);
  for (const std::string name : {"gpt2", "llama3", "prefixed", "several"}) {
    const auto tokenizer = make_tokenizer(golden_file("bpe/" + name + ".json"));
    for (const bool special : {false, true})
      for (const std::size_t piece : {1000u, 1u, 2u, 7u}) {
        const auto found = encode(*tokenizer, documents, piece, special);
        const auto& wanted = expected[name][special ? "special" : "plain"];
        for (std::size_t d = 0; d < documents.size(); ++d)
          EXPECT_EQ(found[d], wanted[d].get<Ids>())
              << name << ", document " << d << " in pieces of " << piece
              << (special ? " with special tokens" : "");
      }
  }
}

TEST(Bpe, VocabJsonWithMergesGivesTheSameTokenizer) {
  const auto file = make_tokenizer(golden_file("bpe/gpt2.json"));
  const auto folder = make_tokenizer(golden_file("bpe/gpt2"));
  EXPECT_EQ(folder->name(), file->name());
  EXPECT_EQ(folder->vocabulary(), 700);
  EXPECT_EQ(encode(*folder, sample_documents(), 100), encode(*file, sample_documents(), 100));
  EXPECT_NE(make_tokenizer(golden_file("bpe/llama3.json"))->name(), file->name());
}

TEST(Bpe, AnyBytesRoundTripInAnyPieces) {
  std::mt19937 random(3);
  const std::string sample = read_file(golden_file("bpe/sample.txt"));
  for (const std::string name : {"gpt2", "llama3"}) {
    const auto tokenizer = make_tokenizer(golden_file("bpe/" + name + ".json"));
    for (int trial = 0; trial < 200; ++trial) {
      std::string bytes = sample.substr(random() % (sample.size() - 300), 300);
      const unsigned changes = random() % 40;
      for (unsigned i = 0; i < changes; ++i)
        bytes[random() % bytes.size()] = static_cast<char>(random());
      const auto whole = encode(*tokenizer, {bytes}, 1000);
      ASSERT_EQ(decode(*tokenizer, whole[0]), bytes);
      for (const std::size_t piece : {1u, 3u, 50u})
        ASSERT_EQ(encode(*tokenizer, {bytes}, piece), whole);
    }
    std::string all(256, '\0');
    std::iota(all.begin(), all.end(), '\0');
    EXPECT_EQ(decode(*tokenizer, encode(*tokenizer, {all}, 5)[0]), all);
  }
}

TEST(Bpe, InvalidUtf8SplitsLikeReplacementCharacters) {
  const auto tokenizer = make_tokenizer(golden_file("bpe/gpt2.json"));
  const std::string letters = "the oars";
  for (const std::string bad : {"\xFF", "\xC3", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xC0\xAF"}) {
    Ids expected = encode(*tokenizer, {letters}, 100)[0];
    for (const char byte : bad) {  // none of them merges with another
      const Ids one = encode(*tokenizer, {std::string(1, byte)}, 1)[0];
      expected.insert(expected.end(), one.begin(), one.end());
    }
    const Ids rest = encode(*tokenizer, {letters}, 100)[0];
    expected.insert(expected.end(), rest.begin(), rest.end());
    EXPECT_EQ(encode(*tokenizer, {letters + bad + letters}, 100)[0], expected);
  }
}

TEST(Bpe, TextNeverEndsItsDocument) {
  const auto tokenizer = make_tokenizer(golden_file("bpe/gpt2.json"));
  EXPECT_EQ(tokenizer->end_of_document(), 0);
  const std::string text = "a<|endoftext|>b";
  const Ids plain = encode(*tokenizer, {text}, 100)[0];
  EXPECT_EQ(std::count(plain.begin(), plain.end(), 0), 0);
  EXPECT_EQ(decode(*tokenizer, plain), text);
  const Ids special = encode(*tokenizer, {text}, 100, true)[0];
  EXPECT_EQ(std::count(special.begin(), special.end(), 0), 1);
  EXPECT_EQ(decode(*tokenizer, special), "ab");
  EXPECT_THROW(decode(*tokenizer, {700}), Error);
  EXPECT_THROW(decode(*tokenizer, {-1}), Error);
}

TEST(Bpe, SpecialTokensAbsorbSpaces) {
  auto json = nlohmann::json::parse(read_file(golden_file("bpe/gpt2.json")));
  json["added_tokens"][0]["rstrip"] = true;
  const auto tokenizer = parse_tokenizer(json.dump(), "x.json", "");
  for (const std::size_t piece : {100u, 1u, 14u})
    EXPECT_EQ(encode(*tokenizer, {"<|endoftext|>  a"}, piece, true),
              encode(*tokenizer, {"<|endoftext|>a"}, piece, true));
  EXPECT_EQ(decode(*tokenizer, encode(*tokenizer, {"<|endoftext|>  a"}, 100)[0]),
            "<|endoftext|>  a");
}

TEST(Bpe, SelectsTheEndOfDocumentToken) {
  const std::string path = golden_file("bpe/llama3.json");
  EXPECT_EQ(make_tokenizer(TokenizerSource{path, ""})->end_of_document(), 0);
  EXPECT_EQ(make_tokenizer(TokenizerSource{path, "<|eot|>"})->end_of_document(), 700);
  expect_mentions(message_of([&] {
                    make_tokenizer(TokenizerSource{path, "</s>"});
                  }),
                  {path, "</s>", "<|endoftext|>, <|eot|>"});
  EXPECT_THROW(make_tokenizer(TokenizerSource{"bytes", "</s>"}), UsageError);
}

/// The definition, step by step: merges the leftmost pair of the lowest rank.
Ids merge_naively(const std::vector<BpeMerge>& merges, Ids tokens) {
  for (bool merged = true; merged;) {
    merged = false;
    for (const auto& merge : merges) {
      for (std::size_t i = 0; i + 1 < tokens.size() && !merged; ++i)
        if (tokens[i] == merge.left && tokens[i + 1] == merge.right) {
          tokens[i] = merge.result;
          tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(i) + 1);
          merged = true;
        }
      if (merged) break;
    }
  }
  return tokens;
}

TEST(BpeMerges, MergesShortAndLongWordsAsDefined) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 60; ++trial) {
    std::vector<BpeMerge> merges;
    std::set<std::pair<std::int32_t, std::int32_t>> known;
    for (std::int32_t result = 3; result < 40; ++result) {
      const auto any = [&] { return static_cast<std::int32_t>(random() % result); };
      const BpeMerge merge{any(), any(), result};
      if (known.emplace(merge.left, merge.right).second) merges.push_back(merge);
    }
    const BpeMerges table(merges);
    for (const std::size_t length : {1u, 2u, 5u, 63u, 64u, 65u, 200u}) {
      Ids tokens(length);
      for (auto& token : tokens) token = static_cast<std::int32_t>(random() % 3);
      const Ids expected = merge_naively(merges, tokens);
      tokens.resize(table.apply(tokens));
      ASSERT_EQ(tokens, expected) << "length " << length;
    }
  }
}

TEST(BpeTrainer, LearnsTheMergesOfHuggingFace) {
  BpeTrainer trainer;
  for (const auto& document : sample_documents()) {
    for (std::size_t at = 0; at < document.size(); at += 5)
      trainer.feed(std::string_view(document).substr(at, 5));
    trainer.end_document();
  }
  const BpeModel found = trainer.train(700);
  EXPECT_EQ(found.merges.size(), 700u - 257u);
  EXPECT_EQ(parse_tokenizer(tokenizer_json(found), "written", "")->name(),
            make_tokenizer(golden_file("bpe/gpt2.json"))->name())
      << "a name covers all tokens and merges";
  EXPECT_EQ(trainer.train(257).merges.size(), 0u);
  EXPECT_THROW(trainer.train(256), UsageError);
  const std::vector<std::string_view> special{"<|a|>", "<|b|>"};
  const BpeModel more = trainer.train(702, special);
  EXPECT_EQ(more.tokens[0], "<|endoftext|>");
  EXPECT_EQ(more.tokens[2], "<|b|>");
  ASSERT_EQ(more.added.size(), 3u);
  EXPECT_EQ(more.added[2].id, 2);
  ASSERT_EQ(more.merges.size(), found.merges.size());
  EXPECT_EQ(more.merges.back().left, found.merges.back().left + 2) << "the same merges";
  EXPECT_THROW(trainer.train(258, special), UsageError);
  EXPECT_LT(trainer.train(100000).tokens.size(), 10000u) << "ends when nothing is left to merge";
}

/// The tokenizer.json with one value replaced.
std::string changed(const std::string& pointer, const nlohmann::json& value) {
  auto json = nlohmann::json::parse(read_file(golden_file("bpe/llama3.json")));
  json[nlohmann::json::json_pointer(pointer)] = value;
  return json.dump();
}

TEST(TokenizerJson, ReportsTheKeyOfAnUnsupportedFeature) {
  using Json = nlohmann::json;
  struct Case {
    std::string pointer;
    Json value;
    std::vector<std::string> words;
  };
  const std::string split = "/pre_tokenizer/pretokenizers/0/";
  const std::vector<Case> cases{
      {"/model/dropout", 0.1, {"model.dropout = 0.1"}},
      {"/model/continuing_subword_prefix", "##", {"continuing_subword_prefix", "##"}},
      {"/model/vocab", Json::array({1}), {"model.vocab"}},
      {"/model/vocab/a", -1, {"model.vocab.a = -1"}},
      {"/model/vocab/a", 5, {"model.vocab", "both have id 5"}},
      {"/model/vocab/a", 1 << 30, {"model.vocab", "1073741824"}},
      {"/model/merges/0", "a b c", {"model.merges[0]", "a b c"}},
      {"/model/merges/0", Json::array({"a", "nosuch"}), {"model.merges[0]", "nosuch"}},
      {"/truncation", {{"max_length", 512}}, {"truncation", "512"}},
      {split + "pattern/Regex", "\\ba", {"splitting pattern", "\\b", "not supported"}},
      {split + "pattern/Regex", "(?<=a)b", {"'(?<='", "not supported"}},
      {split + "pattern/Regex", "a*", {"no text at all"}},
      {split + "pattern/Regex", "(a", {"splitting pattern = '(a'"}},
      {"/added_tokens/2/lstrip", 1, {"added_tokens[2].lstrip = 1", "true or false"}},
      {"/added_tokens/2/id", 3, {"added_tokens", "id 3"}},
  };
  for (const auto& c : cases) {
    const std::string json = changed(c.pointer, c.value);
    auto words = c.words;
    words.emplace_back("x.json");
    expect_mentions(message_of([&] { parse_tokenizer(json, "x.json", ""); }), words);
  }
  expect_mentions(message_of([] { parse_tokenizer("{", "x.json", ""); }), {"x.json", "not JSON"});
  expect_mentions(message_of([] { make_tokenizer("/nowhere"); }), {"/nowhere", "no such file"});
  expect_mentions(message_of([] { make_tokenizer(TRIREME_SOURCE_DIR); }), {"vocab.json"});
}

TEST(TokenizerJson, MutationsGiveAnErrorOrACompleteTokenizer) {
  const std::string whole = read_file(golden_file("bpe/llama3.json"));
  std::mt19937 random(11);
  const std::string sample = read_file(golden_file("bpe/sample.txt"));
  int accepted = 0;
  for (int trial = 0; trial < 200; ++trial) {
    const std::string json = mutated(whole, random);
    try {
      const auto tokenizer = parse_tokenizer(json, "x.json", "");
      Ids ids;
      tokenizer->encode(sample, ids);
      for (const auto id : ids) ASSERT_LT(id, tokenizer->vocabulary());
      decode(*tokenizer, ids);
      ++accepted;
    } catch (const UsageError&) {
    }
  }
  EXPECT_GT(accepted, 0) << "names of tokens may well change";
  EXPECT_THROW(parse_tokenizer(changed("/normalizer", nullptr) + "x", "x.json", ""), UsageError);
  const std::string deep = "{\"model\":" + std::string(1 << 20, '[');
  EXPECT_THROW(parse_tokenizer(deep + std::string(1 << 20, ']') + "}", "x", ""), UsageError);
}

TEST(Bpe, RejectsAnEndlessWord) {
  const auto tokenizer = make_tokenizer(golden_file("bpe/gpt2.json"));
  const auto encoder = tokenizer->encoder({});
  Ids ids;
  const std::string letters(1 << 20, 'a');
  expect_mentions(message_of([&] {
                    for (int i = 0; i < 6; ++i) encoder->feed(letters, ids);
                  }),
                  {"a word of more than 4", "aaaa"});
  const auto other = tokenizer->encoder({});
  ids.clear();
  for (int i = 0; i < 3; ++i) other->feed(letters, ids);
  other->finish(ids);
  EXPECT_EQ(decode(*tokenizer, ids), letters + letters + letters);
}

TEST(Utf8, AcceptsOnlyWellFormedText) {
  const auto valid = [](std::string_view text) { return utf8_run(text).valid; };
  EXPECT_EQ(valid("abcdefghijk\xC3\xA4\xE2\x82\xAC\xF0\x9F\x9A\xA3"), 20u);
  EXPECT_EQ(valid("\xED\x9F\xBF"), 3u);
  for (const auto* bad : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80",
                          "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xC3("}) {
    EXPECT_EQ(valid(bad), 0u);
    EXPECT_FALSE(utf8_run(bad).incomplete);
  }
  for (const auto* cut : {"\xC3", "\xE2\x82", "\xF0\x9F\x9A", "\xF4\x8F"})
    EXPECT_TRUE(utf8_run(cut).incomplete);
}

}  // namespace
}  // namespace trireme::data
