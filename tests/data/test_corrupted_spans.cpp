// Corrupted spans: lengths and samples of T5's rules, made by tests/golden/corrupted_spans/make.py.
#include <trireme/base/check.hpp>
#include <trireme/data/corrupted_spans.hpp>

#include "support.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <map>
#include <numeric>
#include <vector>

namespace trireme::data {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<std::int32_t>;

constexpr SpanTokens span_ids{31999, 1};

struct Corrupted {
  Ids source, target;
  bool operator<(const Corrupted& other) const {
    return std::tie(source, target) < std::tie(other.source, other.target);
  }
};

/// Sample of the raw tokens 0, 1, 2, ….
Corrupted corrupted(const SpanLengths& lengths, const SampleDraw& draw) {
  const auto room = [](std::int64_t size) { return Ids(static_cast<std::size_t>(size)); };
  Ids raw = room(lengths.raw);
  std::iota(raw.begin(), raw.end(), 0);
  Corrupted sample{room(lengths.source), room(lengths.target)};
  corrupt_spans(lengths, span_ids, draw, raw, sample.source, sample.target);
  return sample;
}

Json golden_spans() {
  return Json::parse(testing::read_file(golden_file("corrupted_spans/golden.json")));
}

TEST(CorruptedSpans, LengthsMatchT5) {
  for (const Json& row : golden_spans()["lengths"]) {
    const SpanLengths found = span_lengths(row[0], row[1], row[2]);
    EXPECT_EQ(found.source, row[0]) << row;
    EXPECT_EQ(found.raw, row[3]) << row;
    EXPECT_EQ(found.noise, row[4]) << row;
    EXPECT_EQ(found.spans, row[5]) << row;
    EXPECT_EQ(found.target, row[6]) << row;
  }
  const SpanLengths published = span_lengths(512, 0.15, 3);
  EXPECT_EQ(published.raw, 568);
  EXPECT_EQ(published.target, 114);
}

TEST(CorruptedSpans, SamplesMatchThePythonTwin) {
  for (const Json& row : golden_spans()["samples"]) {
    const auto found = corrupted(span_lengths(row[0], row[1], row[2]), {row[3], row[4], row[5]});
    EXPECT_EQ(found.source, row[6].get<Ids>()) << row;
    EXPECT_EQ(found.target, row[7].get<Ids>()) << row;
  }
}

/// Every source has its length, and sentinels in both sides join to the text.
TEST(CorruptedSpans, HoldEachTokenOnceInOrder) {
  for (const double density : {0.05, 0.15, 0.3, 0.5})
    for (const double mean_span : {1.0, 2.5, 3.0, 8.0, 100.0})
      for (const std::int64_t size : {3, 4, 5, 7, 30, 64, 100, 513}) {
        if (density == 0.5 && mean_span == 1 && size % 2 == 0) continue;  // more spans than kept
        const SpanLengths lengths = span_lengths(size, density, mean_span);
        ASSERT_EQ(lengths.source, size);
        for (int n = 0; n < 20; ++n) {
          const auto [source, target] = corrupted(lengths, {9, training_stream, n});
          ASSERT_EQ(source.back(), span_ids.end);
          ASSERT_EQ(target.back(), span_ids.end);
          ASSERT_EQ(target.front(), span_ids.first_sentinel);
          Ids text;
          std::int32_t sentinel = span_ids.first_sentinel;
          auto span = target.begin();
          for (auto token = source.begin(); token + 1 < source.end(); ++token) {
            if (*token < lengths.raw) {
              text.push_back(*token);
              continue;
            }
            ASSERT_EQ(*token, sentinel);
            ASSERT_EQ(*span++, sentinel--);
            ASSERT_LT(*span, lengths.raw) << "a span has a token";
            while (span + 1 < target.end() && *span < lengths.raw) text.push_back(*span++);
          }
          ASSERT_EQ(span + 1, target.end());
          ASSERT_EQ(span_ids.first_sentinel - sentinel, lengths.spans);
          Ids whole(static_cast<std::size_t>(lengths.raw));
          std::iota(whole.begin(), whole.end(), 0);
          ASSERT_EQ(text, whole);
        }
      }
}

/// 4 kept tokens in 2 parts and 3 tokens in 2 spans: 3 · 2 samples.
TEST(CorruptedSpans, AreEquallyLikely) {
  const SpanLengths lengths{7, 3, 2, 7, 6};
  std::map<Corrupted, int> found;
  for (int n = 0; n < 6000; ++n) ++found[corrupted(lengths, {5, training_stream, n})];
  ASSERT_EQ(found.size(), 6u);
  for (const auto& [sample, count] : found) EXPECT_NEAR(count, 1000, 5 * 28.9);  // 5 sigma
}

TEST(CorruptedSpans, DependOnSeedStreamAndSampleOnly) {
  const SpanLengths lengths = span_lengths(128, 0.15, 3);
  const std::int64_t far = std::int64_t{1} << 32;
  const std::vector<SampleDraw> draws{{1, training_stream, 0},   {2, training_stream, 0},
                                      {1, evaluation_stream, 0}, {1, training_stream, 1},
                                      {1, training_stream, far}, {1, training_stream, far + 1}};
  std::map<Ids, std::size_t> first;
  for (std::size_t i = 0; i < draws.size(); ++i) first[corrupted(lengths, draws[i]).source] = i;
  EXPECT_EQ(first.size(), draws.size());
  for (std::size_t i = draws.size(); i-- > 0;)
    EXPECT_EQ(first.at(corrupted(lengths, draws[i]).source), i);
}

TEST(CorruptedSpans, RejectLengthsWithoutSpans) {
  const auto message = [](std::int64_t source, double density, double mean_span) {
    return message_of([&] { span_lengths(source, density, mean_span); });
  };
  expect_mentions(message(2, 0.15, 3), {"2 tokens", "shortest have 3"});
  expect_mentions(message(512, 0, 3), {"density of 0"});
  expect_mentions(message(512, 0.95, 3), {"density of 0.95", "at most 0.9"});
  expect_mentions(message(512, 0.15, 0.5), {"spans of 0.5", "at least 1"});
  expect_mentions(message(512, 0.8, 2), {"density of 0.8", "lower density or longer spans"});
}

TEST(CorruptedSpans, DecoderInputsAreTheTargetsOneTokenLater) {
  const Ids targets{7, 8, 9, 1};
  Ids inputs(4);
  shift_right(targets, 0, inputs);
  EXPECT_EQ(inputs, (Ids{0, 7, 8, 9}));
}

}  // namespace
}  // namespace trireme::data
