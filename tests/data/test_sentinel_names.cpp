#include <trireme/base/check.hpp>
#include <trireme/data/sentinel_names.hpp>
#include <trireme/data/text_stream.hpp>

#include "support/source_folder.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace trireme::data {
namespace {

using namespace trireme::testing;
using Ids = std::vector<std::int32_t>;

/// 257 ids of bytes, then 257 and 258 without text, then 3 sentinels.
std::unique_ptr<Tokenizer> bytes_with_sentinels() {
  return with_sentinels(make_tokenizer("bytes"), {261, 3, 262});
}

Ids encoded(const Tokenizer& tokenizer, std::string_view text, bool special = true) {
  Ids ids;
  tokenizer.encode(text, ids, {special});
  return ids;
}

std::string decoded(const Tokenizer& tokenizer, const Ids& ids) {
  std::string text;
  tokenizer.decode(ids, text);
  return text;
}

TEST(SentinelNames, AreIdsBelowTheFirstSentinel) {
  const auto tokenizer = bytes_with_sentinels();
  EXPECT_EQ(tokenizer->vocabulary(), 262);
  EXPECT_EQ(tokenizer->special_token("<extra_id_2>"), 259);
  EXPECT_EQ(tokenizer->special_token("<extra_id_3>"), -1);
  EXPECT_EQ(encoded(*tokenizer, "<extra_id_0>a <extra_id_2><extra_id_1>b"),
            (Ids{261, 'a', ' ', 259, 260, 'b'}));
  EXPECT_EQ(encoded(*tokenizer, "<extra_id_0", true), encoded(*tokenizer, "<extra_id_0", false));
  EXPECT_EQ(encoded(*tokenizer, "<extra_id_3>").size(), 12u) << "there is no such sentinel";
  EXPECT_EQ(encoded(*tokenizer, "<extra_id_0>", false).size(), 12u);
  EXPECT_EQ(encoded(*tokenizer, ""), Ids());
}

TEST(SentinelNames, AreTheTextsOfTheIds) {
  const auto tokenizer = bytes_with_sentinels();
  EXPECT_EQ(decoded(*tokenizer, {261, 'a', 257, 258, 256, 'b', 259}), "<extra_id_0>ab<extra_id_2>");
  EXPECT_THROW(decoded(*tokenizer, {262}), Error);
  TextStream stream(*tokenizer, {}, {"id_1"});
  std::string text;
  EXPECT_TRUE(stream.feed(0xC3, text));  // a part of a character
  EXPECT_TRUE(stream.feed(0xA9, text));
  EXPECT_TRUE(stream.feed(261, text));
  EXPECT_FALSE(stream.feed(260, text));
  EXPECT_EQ(text, "\xC3\xA9<extra_id_0><extra_");
}

/// The words of a Unigram tokenizer begin with the space before them.
TEST(SentinelNames, StandBetweenWholeWords) {
  auto own = make_tokenizer(golden_file("tokenizers/t5.json"));
  const auto ids = static_cast<std::int32_t>(own->vocabulary());
  const Ids the = encoded(*own, "the");
  const auto tokenizer = with_sentinels(std::move(own), {ids + 9, 10, ids + 10});
  const Ids found = encoded(*tokenizer, "the <extra_id_0> the");
  Ids expected = the;
  expected.push_back(ids + 9);
  expected.insert(expected.end(), the.begin(), the.end());
  EXPECT_EQ(found, expected);
  EXPECT_EQ(decoded(*tokenizer, expected), "the<extra_id_0> the");
}

TEST(SentinelNames, StayWithATokenizerThatHasThem) {
  auto one = bytes_with_sentinels();
  const Tokenizer* const same = one.get();
  EXPECT_EQ(with_sentinels(std::move(one), {261, 3, 262}).get(), same);
  EXPECT_EQ(with_sentinels(bytes_with_sentinels(), {270, 3, 271})->special_token("<extra_id_0>"),
            270);
}

}  // namespace
}  // namespace trireme::data
