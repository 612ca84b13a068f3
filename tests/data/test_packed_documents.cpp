// Packing of documents into samples: nothing is lost, little is padding, and the same file gives
// the same samples.
#include <trireme/base/check.hpp>
#include <trireme/data/batch_reader.hpp>
#include <trireme/data/packed_documents.hpp>
#include <trireme/data/samples.hpp>
#include <trireme/deck/deck.hpp>

#include "support.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <vector>

namespace trireme::data {
namespace {

/// Documents of these lengths, whose token t has the id t mod 60000. Some tokens count, if asked
/// for.
class MadeSource final : public TokenSource {
 public:
  explicit MadeSource(const std::vector<std::int64_t>& lengths, bool masked = false)
      : masked_(masked) {
    for (const std::int64_t length : lengths) offsets_.push_back(offsets_.back() + length);
  }
  const std::string& path() const override { return path_; }
  std::int64_t tokens() const override { return tokens_ < 0 ? offsets_.back() : tokens_; }
  std::int64_t vocabulary() const override { return 60000; }
  std::int64_t documents() const override { return std::ssize(offsets_) - 1; }
  const std::string& tokenizer() const override { return path_; }
  TokenizerSource tokenizer_source() const override { return {"", ""}; }
  std::string fingerprint() const override { return ""; }
  void read(std::int64_t first, std::span<std::int32_t> out) const override {
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<std::int32_t>((first + static_cast<std::int64_t>(i)) % 60000);
  }
  bool has_mask() const override { return masked_; }
  static bool counts(std::int64_t token) { return token % 5 != 0; }
  void mask(std::int64_t first, std::span<std::int32_t> tokens) const override {
    for (std::size_t i = 0; masked_ && i < tokens.size(); ++i)
      if (!counts(first + static_cast<std::int64_t>(i))) tokens[i] = uncounted;
  }
  std::int64_t counted(std::int64_t first, std::int64_t count) const override {
    std::int64_t sum = 0;
    for (std::int64_t i = first; i < first + count; ++i) sum += !masked_ || counts(i);
    return sum;
  }
  void read_document_offsets(std::int64_t first, std::span<std::int64_t> out) const override {
    std::copy_n(offsets_.begin() + first, out.size(), out.begin());
  }
  void verify_bytes() const override {}
  void verify() const override {}

  void damage(std::size_t document, std::int64_t offset) {
    if (tokens_ < 0) tokens_ = offsets_.back();
    offsets_[document] = offset;
  }

 private:
  std::string path_ = "made.h5";
  bool masked_;
  std::int64_t tokens_ = -1;
  std::vector<std::int64_t> offsets_{0};
};

/// As of web pages: log-normal with a median of 500 tokens and a long tail.
std::vector<std::int64_t> log_normal(std::int64_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(std::log(500.0), 1.2);
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < count; ++i)
    lengths.push_back(1 + static_cast<std::int64_t>(std::exp(normal(random))));
  return lengths;
}

/// Each token that has a next one in its document is an input exactly once, in a piece of its own
/// document.
void expect_every_token_once(const std::vector<std::int64_t>& lengths, std::int64_t sequence) {
  const MadeSource file(lengths);
  const PackedDocuments packed(file, sequence);
  std::vector<std::int64_t> document_of, seen(static_cast<std::size_t>(file.tokens()));
  for (std::size_t d = 0; d < lengths.size(); ++d)
    document_of.insert(document_of.end(), static_cast<std::size_t>(lengths[d]),
                       static_cast<std::int64_t>(d));
  for (std::int64_t s = 0; s < packed.samples(); ++s) {
    std::int64_t used = 0;
    ASSERT_GE(packed.pieces(s), 1);
    for (std::int64_t i = 0; i < packed.pieces(s); ++i) {
      const auto [first, count] = packed.piece(s, i);
      ASSERT_GE(count, 1);
      if (i > 0) {
        ASSERT_LE(count, packed.piece(s, i - 1).count);
      }
      const auto document = document_of[static_cast<std::size_t>(first)];
      for (std::int64_t t = first; t < first + count; ++t) {
        ++seen[static_cast<std::size_t>(t)];
        ASSERT_EQ(document_of[static_cast<std::size_t>(t + 1)], document);  // the target
      }
      used += count;
    }
    ASSERT_LE(used, sequence);
    if (s > 0) {
      ASSERT_LT(packed.piece(s - 1, 0).first, packed.piece(s, 0).first);
    }
  }
  std::int64_t cut = 0;
  std::size_t end = 0;
  for (const std::int64_t length : lengths) {
    end += static_cast<std::size_t>(length);
    cut += length > sequence + 1;
    for (std::size_t t = end - static_cast<std::size_t>(length); t < end; ++t)
      ASSERT_EQ(seen[t], t + 1 < end) << t;
  }
  EXPECT_EQ(packed.cut(), cut);
  EXPECT_EQ(packed.dropped(), std::ranges::count(lengths, 1));
}

TEST(PackedDocuments, HoldEachTokenOnce) {
  expect_every_token_once({2}, 1);
  expect_every_token_once({1, 2, 1}, 7);
  expect_every_token_once({8, 9, 8, 9, 10, 7, 2, 2, 3, 1, 40, 16}, 8);
  for (const std::int64_t sequence : {1, 2, 63, 64, 65, 1000, 4097, 8192})
    expect_every_token_once(log_normal(500, 3), sequence);
}

/// The longest piece opens a sample, and each next one goes to the fullest sample with room.
TEST(PackedDocuments, UseTheFullestSampleWithRoom) {
  // Lengths of the pieces in order: 7 6 4 3 2 2 of 10.
  const MadeSource file({5, 8, 4, 7, 3, 3});
  const PackedDocuments packed(file, 10);
  ASSERT_EQ(packed.samples(), 3);
  std::vector<std::vector<std::int64_t>> found;
  for (std::int64_t s = 0; s < 3; ++s) {
    found.emplace_back();
    for (std::int64_t i = 0; i < packed.pieces(s); ++i)
      found.back().push_back(packed.piece(s, i).count);
  }
  EXPECT_EQ(found, (std::vector<std::vector<std::int64_t>>{{7, 3}, {6, 4}, {2, 2}}));
  EXPECT_NEAR(packed.padding(), 6.0 / 30, 1e-15);
}

/// Against a search among all samples.
TEST(PackedDocuments, NeedAsManySamplesAsNaiveBestFit) {
  for (const std::int64_t sequence : {100, 2048}) {
    const auto lengths = log_normal(700, 11);
    std::vector<std::int64_t> pieces;
    for (const std::int64_t length : lengths)
      for (std::int64_t rest = length - 1; rest > 0; rest -= sequence)
        pieces.push_back(std::min(rest, sequence));
    std::ranges::sort(pieces, std::greater());
    std::vector<std::int64_t> rooms;
    for (const std::int64_t piece : pieces) {
      auto best = rooms.end();
      for (auto room = rooms.begin(); room != rooms.end(); ++room)
        if (*room >= piece && (best == rooms.end() || *room < *best)) best = room;
      if (best == rooms.end())
        rooms.push_back(sequence - piece);
      else
        *best -= piece;
    }
    EXPECT_EQ(PackedDocuments(MadeSource(lengths), sequence).samples(), std::ssize(rooms));
  }
}

TEST(PackedDocuments, PadTypicalTextsByLessThanOnePercent) {
  for (const std::int64_t sequence : {1024, 2048, 8192}) {
    const PackedDocuments packed(MadeSource(log_normal(20'000, 5)), sequence);
    EXPECT_LT(packed.padding(), 0.01) << sequence;
    EXPECT_GE(packed.padding(), 0) << sequence;
  }
}

/// The soak test has 10,000,000 documents.
TEST(PackedDocuments, UseLinearMemory) {
  const std::int64_t count = std::getenv("TRIREME_MANY_DOCUMENTS") ? 10'000'000 : 100'000;
  const MadeSource file(log_normal(count, 1));
  const PackedDocuments packed(file, 2048);
  std::int64_t pieces = 0;
  for (std::int64_t s = 0; s < packed.samples(); ++s) pieces += packed.pieces(s);
  EXPECT_LE(pieces, count + file.tokens() / 2048);
  EXPECT_LT(packed.padding(), 0.001);
}

TEST(PackedDocuments, DescribeTheirPacking) {
  const std::string text = PackedDocuments(MadeSource({8, 9, 12, 1, 5}), 8).description();
  expect_mentions(text, {"5 documents", "4 samples", "20.00 % of the documents cut",
                         "1 of one token left out", "% padding"});
}

TEST(PackedDocuments, RejectDamageAndFilesWithoutTargets) {
  const auto made = [](const MadeSource& file, std::int64_t sequence) {
    return message_of([&] { PackedDocuments(file, sequence); });
  };
  MadeSource file({5, 6, 7});
  file.damage(1, 12);
  expect_mentions(made(file, 8), {"made.h5", "document 1", "[12, 11)", "damaged"});
  MadeSource late({5, 6, 7});
  late.damage(0, 1);
  expect_mentions(made(late, 8), {"made.h5", "document 0", "damaged"});
  MadeSource early({5, 6, 7});
  early.damage(3, 17);
  expect_mentions(made(early, 8), {"end at token 17 of 18", "damaged"});
  expect_mentions(made(MadeSource({1, 1}), 8), {"none of its 2 documents", "packing = \"none\""});
  expect_mentions(made(MadeSource({5}), std::int64_t{1} << 21), {"1048576", "2097152"});
}

TEST(PackedSamples, HoldWholeDocumentsWithPositionsAndTargets) {
  const auto lengths = log_normal(40, 2);
  const MadeSource file(lengths, true);
  const std::int64_t sequence = 300;
  const Windows windows(file, {sequence, Packing::documents});
  ASSERT_NE(windows.packed(), nullptr);
  EXPECT_FALSE(windows.all_count());
  std::vector<std::int32_t> inputs(300), targets(300), positions(300);
  for (std::int64_t s = 0; s < windows.count(); ++s) {
    windows.read(s, inputs, targets, positions);
    std::size_t at = 0;
    for (std::int64_t i = 0; i < windows.packed()->pieces(s); ++i) {
      const auto [first, count] = windows.packed()->piece(s, i);
      for (std::int64_t t = 0; t < count; ++t, ++at) {
        ASSERT_EQ(inputs[at], (first + t) % 60000);
        ASSERT_EQ(targets[at],
                  MadeSource::counts(first + t + 1) ? (first + t + 1) % 60000 : uncounted);
        ASSERT_EQ(positions[at], t);
      }
    }
    for (; at < inputs.size(); ++at) {
      ASSERT_EQ(inputs[at], 0);
      ASSERT_EQ(targets[at], uncounted);
      ASSERT_EQ(positions[at], 0);
    }
    EXPECT_EQ(windows.counted(s), 300 - std::ranges::count(targets, uncounted));
  }
}

TEST(PackedSamples, OneDocumentGivesItsWindows) {
  std::vector<std::int32_t> inputs(64), targets(64), positions(64), packed_inputs(64),
      packed_targets(64);
  const MadeSource file({65, 65, 65});  // longer by the last target
  const Windows packed(file, {64, Packing::documents});
  const MadeSource one({65});
  const Windows window(one, 64);
  packed.read(0, packed_inputs, packed_targets, positions);
  window.read(0, inputs, targets, positions);
  EXPECT_EQ(packed_inputs, inputs);
  EXPECT_EQ(packed_targets, targets);
  for (std::size_t i = 0; i < positions.size(); ++i)
    EXPECT_EQ(positions[i], static_cast<std::int32_t>(i));
}

TEST(PackedSamples, OccurOncePerEpochInASeededOrder) {
  const MadeSource file(log_normal(2000, 9));
  std::map<std::pair<std::uint64_t, int>, std::vector<std::int64_t>> orders;
  for (const std::uint64_t seed : {1, 2}) {
    const Samples samples(file, {512, Packing::documents}, seed);
    EXPECT_FALSE(samples.all_count());
    for (int epoch = 0; epoch < 2; ++epoch) {
      auto& order = orders[{seed, epoch}];
      for (std::int64_t i = 0; i < samples.per_epoch(); ++i)
        order.push_back(samples.place(epoch * samples.per_epoch() + i).window);
      auto sorted = order;
      std::ranges::sort(sorted);
      std::vector<std::int64_t> all(order.size());
      std::iota(all.begin(), all.end(), 0);
      EXPECT_EQ(sorted, all);
    }
  }
  std::set<std::vector<std::int64_t>> different;
  for (const auto& [key, order] : orders) different.insert(order);
  EXPECT_EQ(different.size(), 4u);
}

/// Sums of samples are the sums of any way to divide them among ranks and micro-batches.
TEST(PackedSamples, DoNotDependOnTheReadSizes) {
  const MadeSource file(log_normal(300, 9), true);
  const Samples first(file, {128, Packing::documents}, 5),
      second(file, {128, Packing::documents}, 5);
  std::vector<std::int32_t> inputs(24 * 128), targets(inputs), positions(inputs);
  first.read(40, 24, inputs, targets, positions);
  std::int64_t counted = 0;
  for (std::int64_t i = 23; i >= 0; --i) {
    std::vector<std::int32_t> one(128), one_targets(128), one_positions(128);
    second.read(40 + i, 1, one, one_targets, one_positions);
    EXPECT_TRUE(std::equal(one.begin(), one.end(), inputs.begin() + i * 128));
    EXPECT_TRUE(std::equal(one_targets.begin(), one_targets.end(), targets.begin() + i * 128));
    EXPECT_TRUE(
        std::equal(one_positions.begin(), one_positions.end(), positions.begin() + i * 128));
    counted += second.counted(40 + i, 1);
  }
  EXPECT_EQ(first.counted(40, 24), counted);
  EXPECT_EQ(counted, std::ssize(targets) - std::ranges::count(targets, uncounted));
}

TEST(PackedSamples, FillAllPositionsOfABatch) {
  const auto config =
      deck::parse_deck(
          "[run]\nsteps = 1\n[model]\nlayers = 1\nhidden = 8\nheads = 1\nsequence = "
          "64\nvocabulary = 60000\n[batch]\nglobal = 4\nmicro = 4\n[optimizer]\n"
          "learning_rate = 1\n[data]\ntrain = \"a.h5\"\npacking = \"documents\"\n",
          "a.toml", {})
          .config;
  const auto reader = make_batch_reader(config);
  const MadeSource file(log_normal(50, 9));
  const Windows windows(file, SampleForm(config.model));
  std::vector<std::int32_t> tokens(256), targets(256), positions(256, 7);
  const std::vector<std::span<std::int32_t>> fields{tokens, targets, positions};
  reader->read(windows, 0, 1, fields);
  EXPECT_EQ(positions[1], 1);
  EXPECT_EQ(std::count(positions.begin() + 64, positions.end(), 0), 192);
  EXPECT_EQ(reader->counted(fields, 1), windows.counted(0));
}

}  // namespace
}  // namespace trireme::data
