#include <trireme/base/check.hpp>
#include <trireme/data/pairs.hpp>
#include <trireme/deck/families.hpp>

#include "support.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <vector>

namespace trireme::data {
namespace {

constexpr std::int64_t pair_sequence = 23;
constexpr std::int64_t text_tokens = 20;
constexpr std::int64_t pair_vocabulary = 260;  // 257 of them are text

deck::Config config_of(SentenceLoss loss, double share = 0.3, std::int64_t seed = 42) {
  deck::Config c;
  c.run.seed = seed;
  deck::set_family(c.model, Family::bert);
  c.model.sequence = pair_sequence;
  c.model.vocabulary = pair_vocabulary;
  c.model.masked_share = share;
  c.model.sentence_loss = loss;
  return c;
}

/// Memory of a batch.
struct PairBatch {
  std::vector<std::int32_t> tokens, segments, targets, rows, pairs;

  PairBatch(const deck::Config& c, std::int64_t samples) {
    const auto size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
    tokens.resize(size(samples * pair_sequence));
    segments.resize(tokens.size());
    targets.resize(size(samples * c.model.targets()));
    const bool pairs_wanted = c.model.has_sentence_head();
    rows.resize(targets.size() + (pairs_wanted ? size(samples) : 0));
    pairs.resize(pairs_wanted ? size(samples) : 0);
  }
  /// The fields in the objective's order.
  std::vector<std::span<std::int32_t>> fields() {
    std::vector<std::span<std::int32_t>> all{tokens, segments, targets, rows};
    if (!pairs.empty()) all.push_back(pairs);
    return all;
  }
  bool operator==(const PairBatch&) const = default;
};

class PairsTest : public ::testing::Test {
 protected:
  PairsTest()
      : tokens_(write_token_file(folder_.file("t.h5"), 80, 257)),
        file_(folder_.file("t.h5")),
        samples_(file_, text_tokens, 42) {}

  PairBatch training(const deck::Config& c, std::int64_t first, std::int64_t count) {
    PairBatch batch(c, count);
    Pairs(c).read(samples_, first, count, batch.fields());
    return batch;
  }

  /// The text of both segments of sample i, with the masked tokens restored.
  static std::array<std::vector<std::int32_t>, 2> text_of(PairBatch batch, std::int64_t i) {
    for (std::size_t q = 0; q < batch.targets.size(); ++q)
      batch.tokens[static_cast<std::size_t>(batch.rows[q])] = batch.targets[q];
    std::array<std::vector<std::int32_t>, 2> text;
    std::vector<std::int32_t> ends;
    for (std::int64_t s = 0; s < pair_sequence; ++s) {
      const auto at = static_cast<std::size_t>(i * pair_sequence + s);
      const auto segment = static_cast<std::size_t>(batch.segments[at]);
      if (s == 0 || batch.tokens[at] >= 257)
        ends.push_back(batch.tokens[at]);
      else
        text[segment].push_back(batch.tokens[at]);
    }
    EXPECT_EQ(ends, (std::vector<std::int32_t>{257, 258, 258})) << "[CLS], [SEP], [SEP]";
    return text;
  }

  std::vector<std::int32_t> window(std::int64_t number) const {
    const auto begin = tokens_.begin() + number * text_tokens;
    return {begin, begin + text_tokens};
  }

  testing::TemporaryFolder folder_;
  std::vector<std::int32_t> tokens_;  // 3240
  TokenFile file_;
  Samples samples_;
};

TEST_F(PairsTest, SplitsTheWindowWithoutASentenceLoss) {
  const PairBatch batch = training(config_of(SentenceLoss::none), 100, 50);
  std::set<std::size_t> cuts;
  for (std::int64_t i = 0; i < 50; ++i) {
    auto [text, second] = text_of(batch, i);
    cuts.insert(text.size());
    text.insert(text.end(), second.begin(), second.end());
    EXPECT_EQ(text, window(samples_.place(100 + i).window));
  }
  EXPECT_GT(cuts.size(), 10u);
  EXPECT_GE(*cuts.begin(), 1u);
  EXPECT_LE(*cuts.rbegin(), static_cast<std::size_t>(text_tokens - 1));
}

TEST_F(PairsTest, SecondSegmentIsTheNextOrFromAnotherWindow) {
  const std::int64_t count = 400;
  const PairBatch batch = training(config_of(SentenceLoss::next), 7, count);
  std::int64_t others = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto [first, second] = text_of(batch, i);
    const std::int64_t own = samples_.place(7 + i).window;
    const auto own_text = window(own);
    const auto cut = static_cast<std::ptrdiff_t>(first.size());
    EXPECT_TRUE(std::equal(first.begin(), first.end(), own_text.begin()));
    std::vector<std::int64_t> sources;
    for (std::int64_t w = 0; w < samples_.per_epoch(); ++w) {
      const auto text = window(w);
      if (std::equal(second.begin(), second.end(), text.begin() + cut, text.end()))
        sources.push_back(w);
    }
    const bool is_own = std::ranges::find(sources, own) != sources.end();
    if (batch.pairs[static_cast<std::size_t>(i)] == 0)
      EXPECT_TRUE(is_own) << i;
    else
      EXPECT_TRUE(!sources.empty() && (!is_own || sources.size() > 1)) << i;
    others += batch.pairs[static_cast<std::size_t>(i)];
    EXPECT_EQ(batch.rows[batch.targets.size() + static_cast<std::size_t>(i)], i * pair_sequence);
  }
  EXPECT_NEAR(static_cast<double>(others), count / 2.0, 5 * std::sqrt(count / 4.0));
}

TEST_F(PairsTest, UnorderedSegmentsAreSwapped) {
  const std::int64_t count = 400;
  const PairBatch batch = training(config_of(SentenceLoss::order), 7, count);
  std::int64_t swapped = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    auto [first, second] = text_of(batch, i);
    if (batch.pairs[static_cast<std::size_t>(i)] == 1) std::swap(first, second);
    first.insert(first.end(), second.begin(), second.end());
    EXPECT_EQ(first, window(samples_.place(7 + i).window)) << i;
    swapped += batch.pairs[static_cast<std::size_t>(i)];
  }
  EXPECT_NEAR(static_cast<double>(swapped), count / 2.0, 5 * std::sqrt(count / 4.0));
}

TEST_F(PairsTest, MasksEightyPercentAndReplacesTen) {
  const auto config = config_of(SentenceLoss::none);
  const std::int64_t masked = config.model.targets();
  EXPECT_EQ(masked, 7);
  const std::int64_t count = 2000;
  const PairBatch batch = training(config, 0, count);
  std::int64_t hidden = 0, kept = 0;
  std::vector<std::int64_t> at(pair_sequence);
  for (std::int64_t i = 0; i < count; ++i) {
    std::set<std::int32_t> places;
    for (std::int64_t k = 0; k < masked; ++k) {
      const auto q = static_cast<std::size_t>(i * masked + k);
      const std::int32_t row = batch.rows[q];
      EXPECT_EQ(row / pair_sequence, i);
      places.insert(row);
      ++at[static_cast<std::size_t>(row % pair_sequence)];
      const std::int32_t token = batch.tokens[static_cast<std::size_t>(row)];
      hidden += token == 259 ? 1 : 0;
      kept += token == batch.targets[q] ? 1 : 0;
      EXPECT_LT(batch.targets[q], 257) << "special tokens are not predicted";
    }
    EXPECT_EQ(std::ssize(places), masked) << "no token twice";
  }
  // Binomial within 5 deviations; a random id equals [MASK] or the original token once in 260.
  const auto expect_share = [](std::int64_t found, double share, double n) {
    EXPECT_NEAR(static_cast<double>(found), share * n, 5 * std::sqrt(share * (1 - share) * n));
  };
  const auto n = static_cast<double>(count * masked);
  expect_share(hidden, 0.8 + 0.1 / 260, n);
  expect_share(kept, 0.1 + 0.1 / 260, n);
  // Ends are never masked; every other place has text in most samples.
  EXPECT_EQ(at.front(), 0);
  EXPECT_EQ(at.back(), 0);
  for (std::size_t s = 1; s + 1 < at.size(); ++s)
    EXPECT_NEAR(static_cast<double>(at[s]), n / (pair_sequence - 2), 0.2 * n / (pair_sequence - 2))
        << s;
}

TEST_F(PairsTest, SamplesDoNotDependOnTheReader) {
  for (const auto loss : {SentenceLoss::next, SentenceLoss::order, SentenceLoss::none}) {
    const auto config = config_of(loss);
    const PairBatch together = training(config, 30, 6);
    for (std::int64_t i = 0; i < 6; ++i) {
      const PairBatch alone = training(config, 30 + i, 1);
      const auto begin = together.tokens.begin() + i * pair_sequence;
      EXPECT_TRUE(std::equal(alone.tokens.begin(), alone.tokens.end(), begin));
      const auto targets = together.targets.begin() + i * config.model.targets();
      EXPECT_TRUE(std::equal(alone.targets.begin(), alone.targets.end(), targets));
    }
  }
}

TEST_F(PairsTest, AnotherEpochOrSeedMasksOtherTokens) {
  const auto config = config_of(SentenceLoss::none);
  EXPECT_NE(training(config_of(SentenceLoss::none, 0.3, 43), 0, 1).rows,
            training(config, 0, 1).rows);
  const std::int64_t again = [&] {  // the place of sample 0's window in the second epoch
    std::int64_t sample = samples_.per_epoch();
    while (samples_.place(sample).window != samples_.place(0).window) ++sample;
    return sample;
  }();
  EXPECT_NE(training(config, again, 1).rows, training(config, 0, 1).rows);
}

TEST_F(PairsTest, EvaluationMasksDoNotDependOnTheSeed) {
  const Windows windows(file_, text_tokens);
  const auto evaluated = [&](std::int64_t seed, std::int64_t first, std::int64_t count) {
    const auto config = config_of(SentenceLoss::next, 0.3, seed);
    PairBatch batch(config, count);
    Pairs(config).read(windows, first, count, batch.fields());
    return batch;
  };
  EXPECT_EQ(evaluated(1, 3, 5), evaluated(2, 3, 5));
  const PairBatch batch = evaluated(1, 3, 5);
  const auto [first, second] = text_of(batch, 2);
  const auto text = window(5);
  EXPECT_TRUE(std::equal(first.begin(), first.end(), text.begin()));
}

TEST_F(PairsTest, RejectsNextSentencesOfAFileWithOneSample) {
  const Windows one(file_, 3000);
  const std::string message =
      message_of([&] { Pairs(config_of(SentenceLoss::next)).expect_usable(one); });
  expect_mentions(message, {"t.h5", "sentence_loss", "\"order\""});
  Pairs(config_of(SentenceLoss::order)).expect_usable(one);
}

TEST_F(PairsTest, ObjectiveSelectsTheReader) {
  auto config = config_of(SentenceLoss::next);
  PairBatch masked(config, 4), expected(config, 4);
  const Windows text(file_, text_tokens);
  make_batch_reader(config)->read(text, 0, 4, masked.fields());
  Pairs(config).read(text, 0, 4, expected.fields());
  EXPECT_EQ(masked, expected);
  EXPECT_EQ(make_batch_reader(config)->text_bytes(masked.fields(), 4, {}), 0);
}

TEST_F(PairsTest, NextTokensFillTheirFields) {
  deck::Config config;
  config.model.sequence = 8;
  const Windows windows(file_, 8);
  const Samples samples(file_, 8, 42);
  const auto reader = make_batch_reader(config);
  reader->expect_usable(Windows(file_, 3000));  // one window is enough
  std::vector<std::int32_t> tokens(4 * 8, -1), targets(4 * 8, -1);
  const std::vector<std::span<std::int32_t>> fields{tokens, targets};
  reader->read(windows, 5, 3, fields);
  for (std::size_t i = 0; i < 24; ++i) {
    EXPECT_EQ(tokens[i], tokens_[40 + i]);
    EXPECT_EQ(targets[i], tokens_[41 + i]);
  }
  EXPECT_EQ(tokens[24], -1) << "after the batch";
  std::vector<std::int32_t> bytes(257);
  for (std::size_t id = 0; id < bytes.size(); ++id) bytes[id] = static_cast<std::int32_t>(id);
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < 24; ++i) sum += tokens_[41 + i];
  EXPECT_EQ(reader->text_bytes(fields, 3, bytes), sum);

  reader->read(samples, 7, 4, fields);
  std::vector<std::int32_t> expected(32), next(32);
  samples.read(7, 4, expected, next);
  EXPECT_EQ(tokens, expected);
  EXPECT_EQ(targets, next);
}

}  // namespace
}  // namespace trireme::data
