#include <trireme/train/text_group.hpp>

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace trireme::train {
namespace {

using Tokens = std::vector<std::int32_t>;

TEST(TextGroup, ShortPromptsUseNarrowPasses) {
  TextGroup group(4, 2, 10);
  EXPECT_TRUE(group.empty());
  group.begin(7, {1, 2, 3});
  EXPECT_FALSE(group.empty());
  EXPECT_TRUE(group.has_room());
  using Rows = std::vector<model::CachedToken>;
  for (std::int32_t i = 0; i < 2; ++i) {
    const auto pass = group.next();
    EXPECT_EQ(pass.width, model::PassWidth::narrow);
    EXPECT_FALSE(pass.with_logits);
    EXPECT_EQ(pass.rows, (Rows{{4, i + 1, i}, {}}));
  }
  group.begin(8, {9});
  EXPECT_FALSE(group.has_room());
  const auto pass = group.next();
  EXPECT_TRUE(pass.with_logits);
  EXPECT_EQ(pass.rows, (Rows{{4, 3, 2}, {5, 9, 0}}));
  EXPECT_EQ(group.drawing(), (std::vector<std::optional<std::size_t>>{7, 8}));
  group.append(0, 5, true);
  group.append(1, 6, false);
  EXPECT_TRUE(group.has_room());
  EXPECT_EQ(group.next().rows, (Rows{{4, 5, 3}, {}}));
}

TEST(TextGroup, WidePassesHoldManyPromptTokens) {
  TextGroup group(0, 2, 200);
  group.begin(0, Tokens(60, 1));
  group.begin(1, Tokens(20, 2));
  const auto first = group.next();
  EXPECT_EQ(first.width, model::PassWidth::wide);
  EXPECT_FALSE(first.with_logits);
  ASSERT_EQ(std::ssize(first.rows), model::wide_rows);
  EXPECT_EQ(first.rows[58], (model::CachedToken{0, 1, 58}));
  EXPECT_EQ(first.rows[59], (model::CachedToken{1, 2, 0}));
  EXPECT_EQ(group.next().rows.size(), 19u - 5u);
  EXPECT_EQ(group.next().rows[1], (model::CachedToken{1, 2, 19}));
  EXPECT_THROW(group.begin(2, {1}), Error) << "no room";
}

/// Rows of images: `length` tokens, of which [first, end) are those of an image.
data::TextImages image_at(std::size_t length, std::size_t first, std::size_t end) {
  data::TextImages images{Tokens(length, -1), {}};
  for (std::size_t i = first; i < end; ++i) images.rows[i] = static_cast<std::int32_t>(i - first);
  return images;
}

TEST(TextGroup, TokensOfAnImageAreInOnePass) {
  TextGroup group(0, 3, 200, 0, 6, true);
  group.begin(0, Tokens(8, 1), {}, image_at(8, 2, 7));
  group.begin(1, Tokens(6, 2), {}, image_at(6, 1, 6));  // ends with its image
  group.begin(2, Tokens(2, 3));
  auto pass = group.next();
  EXPECT_EQ(pass.width, model::PassWidth::wide);
  using Rows = std::vector<model::CachedToken>;
  EXPECT_EQ(pass.rows, (Rows{{0, 1, 0, -1, 1}, {0, 1, 1, -1, 2}, {1, 2, 0, -1, 1}, {2, 3, 0}}))
      << "an image of five does not fit after two tokens";
  pass = group.next();
  ASSERT_EQ(pass.rows.size(), 5u);
  for (std::int32_t i = 0; i < 5; ++i)
    EXPECT_EQ(pass.rows[static_cast<std::size_t>(i)], (model::CachedToken{0, 1, 2 + i, i, 7}));
  pass = group.next();
  ASSERT_EQ(pass.rows.size(), 5u);
  EXPECT_EQ(pass.rows[4], (model::CachedToken{1, 2, 5, 4, 6}));
  EXPECT_FALSE(pass.with_logits);
  pass = group.next();
  EXPECT_EQ(pass.width, model::PassWidth::narrow);
  EXPECT_EQ(pass.rows, (Rows{{0, 1, 7, -1, 8}, {1, 2, 5, 4, 6}, {2, 3, 1}}))
      << "the last token of the image is passed again";
  EXPECT_EQ(group.drawing(), (std::vector<std::optional<std::size_t>>{0, 1, 2}));
  group.append(1, 9, true);
  group.append(0, 9, false);
  group.append(2, 9, false);
  EXPECT_EQ(group.next().rows, (Rows{{}, {1, 9, 6, -1, 7}, {}}));
}

TEST(TextGroup, PassesWholeSourcesBeforeTheirTexts) {
  using Rows = std::vector<model::CachedToken>;
  TextGroup group(4, 3, 10, 100);
  group.begin(7, {0}, {1, 2});
  group.begin(8, {0}, Tokens(99, 3));
  group.begin(9, {0}, {5});
  const auto first = group.next();  // the second source does not fit
  EXPECT_EQ(first.width, model::PassWidth::source);
  EXPECT_FALSE(first.with_logits);
  EXPECT_EQ(first.rows, (Rows{{4, 1, 0}, {4, 2, 1}, {6, 5, 0}}));
  EXPECT_EQ(group.drawing(), (std::vector<std::optional<std::size_t>>(3)));
  const auto second = group.next();
  EXPECT_EQ(second.width, model::PassWidth::long_source);
  ASSERT_EQ(second.rows.size(), 99u);
  EXPECT_EQ(second.rows[98], (model::CachedToken{5, 3, 98}));
  const auto third = group.next();
  EXPECT_EQ(third.width, model::PassWidth::narrow);
  EXPECT_TRUE(third.with_logits);
  EXPECT_EQ(third.rows, (Rows{{4, 0, 0}, {5, 0, 0}, {6, 0, 0}}));
  group.append(0, 11, true);
  group.append(1, 12, false);
  group.append(2, 13, true);
  group.begin(10, {0}, {6, 7});
  EXPECT_EQ(group.next().rows, (Rows{{5, 6, 0}, {5, 7, 1}}));
  EXPECT_EQ(group.next().rows, (Rows{{4, 11, 1}, {5, 0, 0}, {6, 13, 1}}));

  TextGroup other(0, 1, 10, 100);
  EXPECT_THROW(other.begin(0, {0}), Error) << "no source";
  EXPECT_THROW(other.begin(0, {0}, Tokens(101, 1)), Error) << "longer than the encoder reads";
  EXPECT_THROW(TextGroup(0, 1, 10).begin(0, {0}, {1}), Error) << "no encoder";
}

/// Texts of any length, against straight-line code: before each draw, the cache holds the last
/// tokens of the text, from position 0 on.
TEST(TextGroup, CacheHoldsTheTextBeforeEachDraw) {
  std::mt19937 random(5);
  for (const std::int64_t sequence : {1, 2, 7, 40}) {
    TextGroup group(3, 3, sequence);
    std::map<std::int32_t, std::map<std::int32_t, std::int32_t>> cache;  // place, position: token
    std::map<std::size_t, Tokens> context;                               // of each text
    std::map<std::size_t, int> drawn;
    std::size_t begun = 0, ended = 0;
    while (ended < 12) {
      for (; begun < 12 && group.has_room(); ++begun) {
        Tokens prompt(1 + random() % 90);
        for (std::int32_t& token : prompt) token = static_cast<std::int32_t>(random() % 1000);
        group.begin(begun, prompt);
        prompt.erase(prompt.begin(), prompt.end() - std::min(std::ssize(prompt), sequence));
        context[begun] = prompt;
      }
      const auto pass = group.next();
      for (const model::CachedToken& row : pass.rows)
        if (row.text >= 0) cache[row.text][row.position] = row.token;
      const auto drawing = group.drawing();
      for (std::size_t i = 0; i < drawing.size(); ++i) {
        if (!drawing[i]) continue;
        Tokens& text = context[*drawing[i]];
        ASSERT_LE(std::ssize(text), sequence);
        EXPECT_EQ(pass.rows[i].position + 1, std::ssize(text));
        for (std::size_t p = 0; p < text.size(); ++p)
          ASSERT_EQ(cache[pass.rows[i].text][static_cast<std::int32_t>(p)], text[p]);
        EXPECT_EQ(group.drawn(i), drawn[*drawing[i]]);
        const bool continues = ++drawn[*drawing[i]] < 50;
        const auto token = static_cast<std::int32_t>(random() % 1000);
        text.push_back(token);
        if (std::ssize(text) > sequence)
          text.erase(text.begin(), text.end() - std::max<std::int64_t>(1, sequence / 2));
        ended += continues ? 0 : 1;
        group.append(i, token, continues);
      }
    }
    EXPECT_TRUE(group.empty());
  }
}

}  // namespace
}  // namespace trireme::train
