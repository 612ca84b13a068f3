// Malformed tokenizer.json files: each part that is not supported is one error with its path.
#include <trireme/base/check.hpp>
#include <trireme/data/tokenizer.hpp>
#include <trireme/data/tokenizer_json.hpp>

#include <support/temporary_folder.hpp>

#include "support.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <random>
#include <string>
#include <vector>

namespace trireme::data {
namespace {

using Ids = std::vector<std::int32_t>;
using Json = nlohmann::json;
using testing::read_file;

std::string with(const std::string& name, const std::string& pointer, const Json& value) {
  Json json = Json::parse(read_file(golden_file("tokenizers/" + name + ".json")));
  json[Json::json_pointer(pointer)] = value;
  return json.dump();
}

TEST(TokenizerErrors, NameFilePathValueAndSupportedValues) {
  struct Case {
    std::string tokenizer;
    std::string pointer;
    Json value;
    std::vector<std::string> words;
  };
  const std::string metaspace = "/pre_tokenizer/pretokenizers/1/";
  const std::vector<Case> cases{
      {"t5", "/model/type", "WordLevel", {"model.type = \"WordLevel\"", "\"BPE\", \"Unigram\""}},
      {"t5", "/model", 3, {"model = 3", "WordPiece"}},
      {"t5", "/normalizer/type", "Unknown", {"normalizer.type = \"Unknown\"", "\"Precompiled\""}},
      {"t5", "/normalizer", {"NFC"}, {"normalizer = [\"NFC\"]"}},
      {"albert", "/normalizer/normalizers/0/type", 7, {"normalizer.normalizers[0].type = 7"}},
      {"albert", "/normalizer/normalizers/0/pattern", "x", {"normalizers[0].pattern = \"x\""}},
      {"albert", "/normalizer/normalizers/0/content", 1, {"content = 1", "a string"}},
      {"albert", "/normalizer/normalizers/6/pattern/Regex", "(?<=a) ", {"Regex", "(?<="}},
      {"albert", "/normalizer/normalizers", 1, {"normalizers = 1", "a list of at most 64"}},
      {"t5", "/normalizer/precompiled_charsmap", "!!!", {"precompiled_charsmap", "base64"}},
      {"t5",
       "/normalizer/precompiled_charsmap",
       "AAAA",
       {"precompiled_charsmap", "its trie has 0"}},
      {"t5", "/normalizer/precompiled_charsmap", "/////w==", {"its trie has 4294967295 bytes"}},
      {"t5", "/normalizer/precompiled_charsmap", "BAAAAAAAAAD/", {"not UTF-8 at byte 0"}},
      {"t5", metaspace + "replacement", "ab", {"pretokenizers[1].replacement", "one character"}},
      {"t5", metaspace + "prepend_scheme", "last", {"[1].prepend_scheme = \"last\"", "\"first\""}},
      {"t5",
       metaspace + "prepend_scheme",
       "first",
       {"[1].prepend_scheme = \"first\"", "\"never\""}},
      {"t5", metaspace + "add_prefix_space", false, {"[1].prepend_scheme = \"always\"", "never"}},
      {"t5", metaspace + "split", 1, {"[1].split = 1", "true or false"}},
      {"t5", metaspace + "type", "UnicodeScripts", {"[1].type", "\"WhitespaceSplit\""}},
      {"gemma", "/pre_tokenizer/behavior", "Merged", {"pre_tokenizer.behavior", "\"Contiguous\""}},
      {"gemma", "/pre_tokenizer/pattern", {{"String", ""}}, {"pre_tokenizer.pattern", "Regex"}},
      {"t5", "/decoder/type", "CTC", {"decoder.type = \"CTC\"", "\"Metaspace\""}},
      {"llama2", "/decoder/decoders/3/start", -1, {"decoder.decoders[3].start = -1", "integer"}},
      {"t5", "/model/unk_id", 100000, {"model.unk_id = 100000"}},
      {"t5", "/model/vocab", Json::array(), {"model.vocab = []"}},
      {"t5", "/model/vocab/7", {"a"}, {"model.vocab[7] = [\"a\"]", "[token, score]"}},
      {"t5", "/model/vocab/7/1", "x", {"model.vocab[7][1] = \"x\"", "a finite number"}},
      {"t5", "/truncation", {{"max_length", 5}}, {"truncation", "null"}},
      {"bert_cased", "/model/unk_token", "[X]", {"model.unk_token = \"[X]\"", "model.vocab"}},
      {"bert_cased", "/model/max_input_chars_per_word", -2, {"max_input_chars_per_word = -2"}},
      {"bert_cased", "/model/vocab/a", 1, {"model.vocab", "both have id 1"}},
      {"bert_cased", "/model/vocab/a", 1 << 25, {"model.vocab", "33554432"}},
      {"llama2", "/model/merges/0", {"a", "nosuch"}, {"model.merges[0]", "nosuch"}},
      {"llama2", "/model/merges/0", "abc", {"model.merges[0] = \"abc\"", "two tokens"}},
      {"llama2", "/model/dropout", 0.1, {"model.dropout = 0.1", "null"}},
      {"llama2", "/model/end_of_word_suffix", "</w>", {"model.end_of_word_suffix", "</w>"}},
      {"llama2", "/model/unk_token", "[X]", {"model.unk_token", "model.vocab"}},
      {"llama2", "/added_tokens/0/id", 77, {"added_tokens", "<unk>", "77"}},
      {"llama2", "/added_tokens/0/content", "new", {"added_tokens", "both have id 0"}},
      {"llama2", "/added_tokens/0/lstrip", "x", {"added_tokens[0].lstrip = \"x\""}},
      {"mixed", "/added_tokens/1/special", false, {"no special token", "[SEP]", "[UNK]"}},
  };
  for (const auto& c : cases) {
    const std::string json = with(c.tokenizer, c.pointer, c.value);
    auto words = c.words;
    words.emplace_back("x.json: ");
    expect_mentions(message_of([&] { parse_tokenizer(json, "x.json", ""); }), words);
  }
}

TEST(TokenizerErrors, RejectDeepNesting) {
  Json deep = {{"type", "NFC"}};
  for (int i = 0; i < 20; ++i) deep = {{"type", "Sequence"}, {"normalizers", {deep}}};
  expect_mentions(message_of([&] { parse_tokenizer(with("t5", "/normalizer", deep), "x", ""); }),
                  {"x: normalizer", "8 levels"});
  Json other = {{"type", "NFC"}};
  Json* end = &other;
  for (int i = 0; i < 1000; ++i) end = &((*end)["unknown"] = Json::object());
  expect_mentions(message_of([&] { parse_tokenizer(with("t5", "/normalizer", other), "x", ""); }),
                  {"x: normalizer", "16 levels"});
}

TEST(TokenizerErrors, RejectInvalidOffsetsOfACharsmapOnUse) {
  // A trie of 512 units: 'a' is a leaf whose value is outside of the replacements.
  std::string bytes(4 + 512 * 4, '\0');
  const auto put = [&](std::size_t at, std::uint32_t value) {
    for (int i = 0; i < 4; ++i)
      bytes[at + static_cast<std::size_t>(i)] = static_cast<char>(value >> 8 * i);
  };
  put(0, 512 * 4);
  put(4, 1u << 10);  // the root's children are at 1
  put(4 + 4 * (1 ^ 'a'), 2u << 10 | 256 | 'a');
  put(4 + 4 * (1 ^ 'a' ^ 2), 1u << 31 | 999);
  constexpr char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  bytes.resize(bytes.size() + (3 - bytes.size() % 3) % 3, '\0');
  std::string encoded;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 3; ++k) bits = bits << 8 | static_cast<unsigned char>(bytes[i + k]);
    for (int k = 18; k >= 0; k -= 6) encoded += digits[bits >> k & 63];
  }
  const std::string json = with("t5", "/normalizer/precompiled_charsmap", encoded);
  expect_mentions(message_of([&] {
                    const auto tokenizer = parse_tokenizer(json, "x.json", "");
                    Ids ids;
                    tokenizer->encode("a", ids);
                  }),
                  {"x.json: normalizer.precompiled_charsmap", "byte 999"});
}

TEST(TokenizerErrors, MutationsGiveAnErrorOrACompleteTokenizer) {
  std::mt19937 random(23);
  const std::string sample = "The fox, 12 caf\xC3\xA9s  <unk> \xE4\xB8\x80\xFF o\xCC\x88\n\n</s> x";
  int accepted = 0;
  for (const std::string name :
       {"llama2", "gemma", "t5", "albert", "unigram_bytes", "bert_uncased", "mixed"}) {
    const std::string whole = read_file(golden_file("tokenizers/" + name + ".json"));
    for (int trial = 0; trial < 150; ++trial) {
      // Half of the changes are in the small parts before the model.
      const std::size_t model = whole.find("\"model\"");
      const std::string json = trial % 2 == 0
                                   ? mutated(whole, random)
                                   : mutated(whole.substr(0, model), random) + whole.substr(model);
      try {
        const auto tokenizer = parse_tokenizer(json, "x.json", "");
        for (const bool special : {false, true}) {
          Ids ids;
          const auto encoder = tokenizer->encoder({special});
          encoder->feed(sample, ids);
          encoder->finish(ids);
          for (const auto id : ids) ASSERT_LT(id, tokenizer->vocabulary());
          std::string text;
          tokenizer->decode(ids, text);
        }
        ++accepted;
      } catch (const UsageError&) {
      }
    }
  }
  EXPECT_GT(accepted, 0) << "names of tokens may well change";
}

}  // namespace
}  // namespace trireme::data
