// Texts that come token by token, against the texts of all tokens at once.
#include <trireme/base/utf8.hpp>
#include <trireme/data/text_stream.hpp>
#include <trireme/data/tokenizer.hpp>

#include <support/temporary_folder.hpp>

#include "support.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <span>
#include <string>
#include <vector>

namespace trireme::data {
namespace {

using Ids = std::vector<std::int32_t>;
using Json = nlohmann::json;

/// The text, and what was known after each token.
struct Streamed {
  std::string text;
  std::vector<std::string> pieces;
  bool stopped = false;
};

Streamed stream(const Tokenizer& tokenizer, std::span<const std::int32_t> before,
                std::span<const std::int32_t> ids, const std::vector<std::string>& stops = {}) {
  TextStream texts(tokenizer, before, stops);
  Streamed found;
  for (const std::int32_t id : ids) {
    std::string piece;
    found.stopped = !texts.feed(id, piece);
    found.pieces.push_back(piece);
    found.text += piece;
    if (found.stopped) return found;
  }
  found.stopped = !texts.finish(found.text);
  return found;
}

/// Decoders replace a whole run of bytes that are no character, also those that came before: only
/// texts without such bytes are the same.
TEST(TextStream, PiecesJoinToTheTextOfAllTokens) {
  const Json strings = Json::parse(testing::read_file(golden_file("tokenizers/strings.json")));
  int compared = 0;
  for (const std::string name : {"llama2", "mistral", "gemma", "t5", "xlmr", "unigram_bytes",
                                 "bert_uncased", "qwen", "mixed"}) {
    const auto tokenizer = make_tokenizer(golden_file("tokenizers/" + name + ".json"));
    for (const auto& string : strings) {
      Ids ids{tokenizer->end_of_document()};
      tokenizer->encode(string.get<std::string>(), ids);
      std::string whole;
      tokenizer->decode(ids, whole);
      if (whole.find("\xEF\xBF\xBD") != std::string::npos) continue;
      for (const std::size_t cut : {std::size_t{1}, ids.size() / 2 + 1}) {
        if (cut >= ids.size()) continue;
        const auto before = std::span(ids).first(cut), after = std::span(ids).subspan(cut);
        std::string prompt;
        tokenizer->decode(before, prompt);
        const bool within = utf8_run(prompt).valid != prompt.size();  // a character
        if (within || !whole.starts_with(prompt)) continue;
        const Streamed found = stream(*tokenizer, before, after);
        EXPECT_EQ(prompt + found.text, whole) << name << ", '" << whole << "' after " << cut;
        ++compared;
        for (const std::string& piece : found.pieces)
          EXPECT_EQ(utf8_run(piece).valid, piece.size()) << name << " cuts '" << whole << "'";
      }
    }
  }
  EXPECT_GT(compared, 500);
}

TEST(TextStream, ReleasesInvalidUtf8) {
  const auto bytes = make_tokenizer("bytes");
  const Ids ids(50, 0xE2);  // each begins a character that never ends
  const Streamed found = stream(*bytes, {}, ids);
  EXPECT_EQ(found.text, std::string(50, '\xE2'));
  std::string early;
  for (std::size_t i = 0; i < 20; ++i) early += found.pieces[i];
  EXPECT_NE(early, "");
}

TEST(TextStream, StopTextsEndItAndAreOmitted) {
  const auto bytes = make_tokenizer("bytes");
  const std::string text = "one two threeonetwo";
  const Ids ids(text.begin(), text.end());
  const auto with = [&](const std::vector<std::string>& stops) {
    return stream(*bytes, {}, ids, stops);
  };
  EXPECT_EQ(with({"four"}).text, text);
  EXPECT_FALSE(with({"four"}).stopped);
  EXPECT_EQ(with({" t"}).text, "one");
  EXPECT_TRUE(with({" t"}).stopped);
  EXPECT_EQ(with({"three", "two"}).text, "one ");
  EXPECT_EQ(with({"o"}).text, "");
  EXPECT_EQ(with({"threeonetwo"}).text, "one two ");
  EXPECT_TRUE(with({"threeonetwo"}).stopped);
  EXPECT_EQ(with({"onetwo!"}).text, text) << "held until the end";
  for (const std::string& piece : with({"threeonetwo"}).pieces)
    EXPECT_EQ(piece.find("th"), std::string::npos) << "shown before it was known";
}

TEST(TextStream, PiecesBeforeAStopTextEndWithWholeCharacters) {
  const auto bytes = make_tokenizer("bytes");
  const std::string text = "né 中文字 и 🙂🙂 end";
  Ids ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  for (const std::string stop : {"!!", "!!!", "!!!!", "!!!!!"}) {
    const Streamed found = stream(*bytes, {}, ids, {stop});
    EXPECT_EQ(found.text, text);
    for (const std::string& piece : found.pieces)
      EXPECT_EQ(utf8_run(piece).valid, piece.size()) << stop;
  }
}

}  // namespace
}  // namespace trireme::data
