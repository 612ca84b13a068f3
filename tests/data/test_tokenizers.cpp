// Tokenizers in the forms of Llama 2, Mistral, Gemma, T5, ALBERT, XLM-R, BERT and Qwen, compared
// with the ids and texts that Hugging Face's `tokenizers` gives (tests/golden/tokenizers/make.py).
#include <trireme/base/check.hpp>
#include <trireme/data/tokenizer.hpp>
#include <trireme/data/tokenizer_json.hpp>

#include <support/temporary_folder.hpp>

#include "support.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <ctime>
#include <span>
#include <string>
#include <vector>

namespace trireme::data {
namespace {

using Ids = std::vector<std::int32_t>;
using Json = nlohmann::json;
using testing::read_file;

const std::vector<std::string> names{"llama2",     "mistral", "gemma",         "t5",
                                     "albert",     "xlmr",    "unigram_bytes", "bert_uncased",
                                     "bert_cased", "qwen",    "mixed"};

std::vector<std::string> all_strings() {
  return Json::parse(read_file(golden_file("tokenizers/strings.json")))
      .get<std::vector<std::string>>();
}

Ids encode(Encoder& encoder, const std::string& text, std::size_t piece) {
  Ids ids;
  for (std::size_t at = 0; at < text.size(); at += piece)
    encoder.feed(std::string_view(text).substr(at, piece), ids);
  encoder.finish(ids);
  return ids;
}

void expect_golden(const Tokenizer& tokenizer, const Json& wanted,
                   const std::vector<std::string>& strings, const std::string& name) {
  const auto plain = tokenizer.encoder({false});
  const auto special = tokenizer.encoder({true});
  for (std::size_t i = 0; i < strings.size(); ++i) {
    const std::string key = std::to_string(i);
    const Ids ids = wanted["ids"][i].get<Ids>();
    for (const std::size_t piece : {1000u, 1u, 5u}) {
      if (!ids.empty()) {
        EXPECT_EQ(encode(*plain, strings[i], piece), ids)
            << name << ", string " << i << " '" << strings[i] << "' in pieces of " << piece;
      }
      EXPECT_EQ(encode(*special, strings[i], piece), wanted["special"].value(key, ids))
          << name << " with special tokens, string " << i << " '" << strings[i] << "'";
    }
    if (ids.empty()) continue;
    EXPECT_EQ(decode(tokenizer, ids), wanted["text"].value(key, strings[i])) << name << " " << i;
  }
}

TEST(Tokenizers, MatchHuggingFaceInAnyPieces) {
  const auto strings = all_strings();
  const Json expected = Json::parse(read_file(golden_file("tokenizers/golden.json")));
  ASSERT_EQ(expected.size(), names.size());
  for (const auto& name : names)
    expect_golden(*make_tokenizer(golden_file("tokenizers/" + name + ".json")), expected[name],
                  strings, name);
}

TEST(Tokenizers, OtherComponentsMatchHuggingFace) {
  const auto strings = all_strings();
  const Json changes = Json::parse(read_file(golden_file("tokenizers/parts.json")));
  EXPECT_GT(changes.size(), 30u);
  for (const auto& change : changes) {
    Json json = Json::parse(
        read_file(golden_file("tokenizers/" + change["base"].get<std::string>() + ".json")));
    json.update(change["change"]);
    std::vector<std::string> some;
    for (const std::size_t i : change["strings"]) some.push_back(strings[i]);
    expect_golden(*parse_tokenizer(json.dump(), "x.json", ""), change, some,
                  change["change"].dump());
  }
}

/// All strings as one text, `count` times.
std::string long_text(int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    for (const auto& string : all_strings()) text += string + (i % 2 == 0 ? "\n" : " ");
  return text;
}

TEST(Tokenizers, LongDocumentsGiveTheSameIdsInAnyPieces) {
  const std::string text = long_text(12);
  for (const auto& name : names) {
    const auto tokenizer = make_tokenizer(golden_file("tokenizers/" + name + ".json"));
    const auto encoder = tokenizer->encoder({});
    const Ids whole = encode(*encoder, text, text.size());
    for (const std::size_t piece : {1000u, 4096u, 30000u})
      EXPECT_EQ(encode(*encoder, text, piece), whole) << name << " in pieces of " << piece;
    const std::string decoded = decode(*tokenizer, whole);
    const auto decoder = tokenizer->decoder();
    std::string in_parts;
    for (std::size_t at = 0; at < whole.size(); at += 777)
      decoder->feed(std::span(whole).subspan(at, std::min<std::size_t>(777, whole.size() - at)),
                    in_parts);
    decoder->finish(in_parts);
    EXPECT_EQ(in_parts, decoded) << name;
  }
}

TEST(Tokenizers, DecodeDocumentsOneByOne) {
  const auto tokenizer = make_tokenizer(golden_file("tokenizers/llama2.json"));
  Ids ids;
  tokenizer->encode("the fox", ids);
  ids.push_back(tokenizer->end_of_document());
  tokenizer->encode("the dog", ids);
  EXPECT_EQ(decode(*tokenizer, ids), "the foxthe dog") << "no blank before the second document";
}

TEST(Tokenizers, ContinuationsKeepTheirLeadingSpace) {
  for (const std::string name : {"llama2", "t5", "qwen"}) {
    const auto tokenizer = make_tokenizer(golden_file("tokenizers/" + name + ".json"));
    Ids all;
    tokenizer->encode("the fox over the dog", all);
    for (std::size_t cut = 0; cut <= all.size(); ++cut) {
      const auto before = std::span(all).first(cut);
      std::string text = decode(*tokenizer, Ids(before.begin(), before.end()));
      tokenizer->decode_after(before, std::span(all).subspan(cut), text);
      EXPECT_EQ(text, decode(*tokenizer, all)) << name << " " << cut;
    }
    std::int64_t bytes = 0;
    for (const std::int32_t id : all) bytes += tokenizer->text_bytes(id);
    EXPECT_NEAR(static_cast<double>(bytes), 20, 1) << name << ": a blank before the first word";
  }
}

TEST(Tokenizers, ReplaceInvalidAndTruncatedUtf8) {
  const auto tokenizer = make_tokenizer(golden_file("tokenizers/mistral.json"));
  const auto encoder = tokenizer->encoder({});
  const std::string replacement = "\xEF\xBF\xBD";
  for (const std::size_t piece : {100u, 1u}) {
    EXPECT_EQ(decode(*tokenizer, encode(*encoder, "a\xFF\xE2\x82z\xF0\x9F", piece)),
              "a" + replacement + replacement + "z" + replacement);
  }
  const Ids bytes = encode(*encoder, "\xF0\xA8\xA1\xA6", 100);
  ASSERT_EQ(bytes.size(), 5u);
  EXPECT_EQ(decode(*tokenizer, Ids(bytes.begin() + 1, bytes.begin() + 3)),
            replacement + replacement);
}

TEST(Tokenizers, TextNeverEndsItsDocument) {
  for (const auto& name : names) {
    const auto tokenizer = make_tokenizer(golden_file("tokenizers/" + name + ".json"));
    Json json = Json::parse(read_file(golden_file("tokenizers/" + name + ".json")));
    Ids special;
    std::string text;
    for (const auto& token : json["added_tokens"])
      if (token["special"]) {
        special.push_back(token["id"]);
        text +=
            " " + token["content"].get<std::string>() + " x" + token["content"].get<std::string>();
      }
    const Json& named = json["model"]["unk_token"];
    const std::string unknown = named.is_string() ? named.get<std::string>() : "<unk>";
    for (const std::int32_t id : encode(*tokenizer->encoder({}), text, 1000))
      for (const auto& token : json["added_tokens"])
        EXPECT_FALSE(token["special"] && token["id"] == id && token["content"] != unknown)
            << name << " " << token;
    const Ids found = encode(*tokenizer->encoder({true}), text, 3);
    for (const std::int32_t id : special) EXPECT_GE(std::count(found.begin(), found.end(), id), 2);
  }
}

/// T5's sentinels are in its vocabulary with the highest score, and special tokens. Some files
/// strip white space around them.
TEST(Tokenizers, EncodeSentinelsAsHuggingFace) {
  const Json golden = Json::parse(read_file(golden_file("sentinels/golden.json")));
  for (const bool strips : {false, true}) {
    Json json = Json::parse(read_file(golden_file("tokenizers/t5.json")));
    json["added_tokens"].erase(3);
    Json& vocab = json["model"]["vocab"];
    for (int i = 99; i >= 0; --i) {
      const std::string name = text("<extra_id_", i, ">");
      json["added_tokens"].push_back({{"id", vocab.size()},
                                      {"content", name},
                                      {"special", true},
                                      {"lstrip", strips},
                                      {"rstrip", strips}});
      vocab.push_back({name, 0.0});
    }
    const auto tokenizer = parse_tokenizer(json.dump(), "t5.json", "");
    const std::int32_t first = tokenizer->special_token("<extra_id_0>");
    EXPECT_EQ(first, tokenizer->vocabulary() - 1);
    EXPECT_EQ(tokenizer->special_token("<extra_id_99>"), first - 99);
    for (std::size_t i = 0; i < golden["strings"].size(); ++i) {
      const std::string string = golden["strings"][i];
      for (const std::size_t piece : {1000u, 1u, 5u}) {
        EXPECT_EQ(encode(*tokenizer->encoder({true}), string, piece), golden["ids"][i].get<Ids>())
            << string << " in pieces of " << piece;
        for (const std::int32_t id : encode(*tokenizer->encoder({}), string, piece))
          EXPECT_LE(id, first - 100) << string << ": the names are text";
      }
      EXPECT_EQ(decode(*tokenizer, golden["ids"][i]), golden["texts"][i]);
    }
  }
}

TEST(Tokenizers, FindTheEndOfDocumentToken) {
  const auto end_of = [](const std::string& name) {
    const Json json = Json::parse(read_file(golden_file("tokenizers/" + name + ".json")));
    const auto id = make_tokenizer(golden_file("tokenizers/" + name + ".json"))->end_of_document();
    for (const auto& token : json["added_tokens"])
      if (token["id"] == id) return token["content"].get<std::string>();
    return std::string();
  };
  EXPECT_EQ(end_of("llama2"), "</s>");
  EXPECT_EQ(end_of("gemma"), "<eos>");
  EXPECT_EQ(end_of("bert_cased"), "[SEP]");
  EXPECT_EQ(end_of("qwen"), "<|endoftext|>");
  const std::string path = golden_file("tokenizers/bert_cased.json");
  EXPECT_EQ(make_tokenizer(TokenizerSource{path, "[CLS]"})->end_of_document(), 2);
}

TEST(Tokenizers, NamesDependOnEverythingThatAffectsIds) {
  const Json json = Json::parse(read_file(golden_file("tokenizers/t5.json")));
  const auto name_of = [](const Json& changed) {
    return parse_tokenizer(changed.dump(), "x.json", "")->name();
  };
  const std::string name = make_tokenizer(golden_file("tokenizers/t5.json"))->name();
  EXPECT_TRUE(name.starts_with("unigram-")) << name;
  EXPECT_EQ(name_of(json), name);
  Json other = json;
  other["decoder"] = nullptr;
  EXPECT_EQ(name_of(other), name);
  other["model"]["vocab"][20][1] = -3.5;
  EXPECT_NE(name_of(other), name);
  other = json;
  other["normalizer"] = nullptr;
  EXPECT_NE(name_of(other), name);
}

/// Processor time of encoding, in seconds.
double seconds_of(const Tokenizer& tokenizer, const std::string& text) {
  const auto encoder = tokenizer.encoder({});
  const std::clock_t begin = std::clock();
  encode(*encoder, text, 256 << 10);
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

TEST(Tokenizers, TimeIsLinearForALineWithoutSpaces) {
  for (const auto& name : names) {
    const auto tokenizer = make_tokenizer(golden_file("tokenizers/" + name + ".json"));
    for (const std::string unit : {"a", "\xE4\xB8\x80", "ab\xCC\x81.", " "}) {
      std::string text;
      while (text.size() < 60000) text += unit;
      const double once = seconds_of(*tokenizer, text);
      while (text.size() < 360000) text += unit;
      EXPECT_LT(seconds_of(*tokenizer, text), 15 * once + 0.1) << name << " '" << unit << "'";
    }
  }
}

TEST(Tokenizers, RejectAnEndlessWord) {
  const auto tokenizer = make_tokenizer(golden_file("tokenizers/bert_cased.json"));
  const auto encoder = tokenizer->encoder({});
  Ids ids;
  const std::string letters(1 << 20, 'a');
  expect_mentions(message_of([&] {
                    for (int i = 0; i < 40; ++i) encoder->feed(letters, ids);
                  }),
                  {"a word of more than 16", "aaaa"});
}

}  // namespace
}  // namespace trireme::data
