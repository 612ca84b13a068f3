// Pairs of source and target: from JSON lines to a token file, and packed to samples.
#include <trireme/architecture/objective.hpp>
#include <trireme/base/check.hpp>
#include <trireme/data/batch_reader.hpp>
#include <trireme/data/instructions.hpp>
#include <trireme/data/packed_pairs.hpp>
#include <trireme/data/tokenize.hpp>
#include <trireme/deck/deck.hpp>

#include <support/temporary_folder.hpp>

#include "support.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <vector>

namespace trireme::data {
namespace {

using testing::TemporaryFolder;
using Ids = std::vector<std::int32_t>;

constexpr std::int32_t pair_end = 1;
constexpr std::int32_t pair_start = 7;

struct PairIds {
  Ids source, target;
  bool operator==(const PairIds&) const = default;
  bool operator<(const PairIds& other) const {
    return std::tie(source, target) < std::tie(other.source, other.target);
  }
};

/// Different pairs whose lengths are log-normal with these medians.
std::vector<PairIds> some_pairs(int count, double source, double target, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, 0.8);
  const auto side = [&](double median) {
    Ids ids;
    const auto length = static_cast<std::int64_t>(median * std::exp(normal(random)));
    for (std::int64_t i = 0; i < length; ++i)
      ids.push_back(2 + static_cast<std::int32_t>(random() % 30000));
    ids.push_back(pair_end);
    return ids;
  };
  std::vector<PairIds> pairs;
  for (int i = 0; i < count; ++i) {
    Ids first = side(source);
    pairs.push_back({std::move(first), side(target)});
  }
  return pairs;
}

void write_pairs(const std::string& path, const std::vector<PairIds>& pairs) {
  TokenFileWriter writer(path, "test", 32000);
  for (const PairIds& pair : pairs) {
    writer.append(pair.source, false);
    writer.append(pair.target);
    writer.end_document(10);
  }
  writer.commit("");
}

struct PairRows {
  Ids source, source_begin, source_end, inputs, targets, positions, key_begin, key_end;
  PairRows(const PackedPairs& packed, std::int64_t sample, std::size_t sources, std::size_t wanted)
      : source(sources, 9),
        source_begin(source),
        source_end(source),
        inputs(wanted, 9),
        targets(inputs),
        positions(inputs),
        key_begin(inputs),
        key_end(inputs) {
    packed.read(sample, pair_start,
                {source, inputs, targets, positions, source_begin, source_end, key_begin, key_end});
  }
};

/// The pairs of a sample by its fields alone. Expects that padding is as documented.
std::vector<PairIds> pairs_of(const PairRows& rows) {
  std::vector<PairIds> pairs;
  std::size_t used = 0;
  std::size_t at = 0;
  for (; at < rows.targets.size() && rows.targets[at] != uncounted; ++at) {
    const auto begin = static_cast<std::size_t>(rows.key_begin[at]);
    const auto end = static_cast<std::size_t>(rows.key_end[at]);
    if (rows.positions[at] == 0) {
      EXPECT_EQ(begin, used) << "sources follow one another";
      EXPECT_EQ(rows.inputs[at], pair_start);
      used = end;
      pairs.push_back(
          {Ids(rows.source.begin() + rows.key_begin[at], rows.source.begin() + rows.key_end[at]),
           {}});
      for (std::size_t i = begin; i < end; ++i) {
        EXPECT_EQ(rows.source_begin[i], rows.key_begin[at]);
        EXPECT_EQ(rows.source_end[i], rows.key_end[at]);
      }
    } else {
      EXPECT_EQ(rows.positions[at], rows.positions[at - 1] + 1);
      EXPECT_EQ(rows.inputs[at], rows.targets[at - 1]);
      EXPECT_EQ(rows.key_begin[at], rows.key_begin[at - 1]);
      EXPECT_EQ(rows.key_end[at], rows.key_end[at - 1]);
    }
    pairs.back().target.push_back(rows.targets[at]);
  }
  for (; at < rows.targets.size(); ++at) {
    EXPECT_EQ(rows.targets[at], uncounted);
    EXPECT_EQ(rows.inputs[at] | rows.positions[at], 0);
    EXPECT_EQ(rows.key_begin[at], static_cast<std::int32_t>(used));
    EXPECT_EQ(rows.key_end[at], static_cast<std::int32_t>(used));
  }
  for (std::size_t i = used; i < rows.source.size(); ++i) {
    EXPECT_EQ(rows.source[i], 0);
    EXPECT_EQ(rows.source_begin[i], static_cast<std::int32_t>(used));
    EXPECT_EQ(rows.source_end[i], static_cast<std::int32_t>(used));
  }
  return pairs;
}

TEST(PackedPairs, HoldEachPairOnceCutToBothLengths) {
  const TemporaryFolder folder;
  const std::string path = folder.file("t.h5");
  auto pairs = some_pairs(1500, 60, 20, 4);
  write_pairs(path, pairs);
  const TokenFile file(path);
  for (const auto& [sources, wanted] : {std::pair<std::size_t, std::size_t>{256, 64}, {40, 200}}) {
    const PackedPairs packed(file, static_cast<std::int64_t>(sources),
                             static_cast<std::int64_t>(wanted));
    std::vector<PairIds> found, expected = pairs;
    for (std::int64_t s = packed.samples(); s-- > 0;) {
      const PairRows rows(packed, s, sources, wanted);
      for (auto& pair : pairs_of(rows)) found.push_back(std::move(pair));
      EXPECT_EQ(packed.counted(s),
                std::ssize(rows.targets) - std::ranges::count(rows.targets, uncounted));
    }
    std::int64_t cut = 0;
    for (PairIds& pair : expected) {
      cut += pair.source.size() > sources || pair.target.size() > wanted ? 1 : 0;
      pair.source.resize(std::min(pair.source.size(), sources));
      pair.target.resize(std::min(pair.target.size(), wanted));
    }
    std::ranges::sort(found, std::less<>());
    std::ranges::sort(expected, std::less<>());
    EXPECT_EQ(found, expected);
    EXPECT_EQ(packed.cut(), cut);
    EXPECT_GT(cut, 0);
  }
}

TEST(PackedPairs, UseTheFirstSampleWithRoomForBothSides) {
  const auto pair = [](std::size_t source, std::size_t target) {
    return PairIds{Ids(source, pair_end), Ids(target, pair_end)};
  };
  const TemporaryFolder folder;
  write_pairs(folder.file("t.h5"), {pair(6, 1), pair(4, 4), pair(5, 1), pair(1, 9), pair(4, 3)});
  const TokenFile file(folder.file("t.h5"));
  const PackedPairs packed(file, 10, 8);
  std::vector<std::vector<std::uint32_t>> found;
  for (std::int64_t s = 0; s < packed.samples(); ++s)
    found.emplace_back(packed.pairs(s).begin(), packed.pairs(s).end());
  // The first sample has no free source after pair 1, pair 3 is cut to 8 target tokens.
  EXPECT_EQ(found, (std::vector<std::vector<std::uint32_t>>{{0, 1}, {2, 4}, {3}}));
  EXPECT_EQ(packed.cut(), 1);
  EXPECT_NEAR(packed.source_padding(), 10.0 / 30, 1e-15);
  EXPECT_NEAR(packed.target_padding(), 7.0 / 24, 1e-15);
  expect_mentions(packed.description(), {"5 pairs in 3 samples", "33.33 % padding of sources",
                                         "29.17 % of targets", "20.00 % of the pairs cut"});
}

TEST(PackedPairs, FillASampleEachWithoutPacking) {
  const TemporaryFolder folder;
  auto pairs = some_pairs(40, 12, 5, 9);
  write_pairs(folder.file("t.h5"), pairs);
  const TokenFile file(folder.file("t.h5"));
  const PackedPairs packed(file, 300, 100, Packing::none);
  ASSERT_EQ(packed.samples(), 40);
  for (std::int64_t s = 0; s < packed.samples(); ++s)
    EXPECT_EQ(pairs_of(PairRows(packed, s, 300, 100)),
              std::vector{pairs[static_cast<std::size_t>(s)]});
}

/// The samples that a batch lacks see no keys and count nothing.
TEST(PairBatches, FillAllFieldsOfABatch) {
  const TemporaryFolder folder;
  write_pairs(folder.file("t.h5"), some_pairs(40, 12, 5, 9));
  const TokenFile file(folder.file("t.h5"));
  for (const char* packing : {"none", "documents"}) {
    const auto config =
        deck::parse_deck(
            "[run]\nsteps = 1\n[model]\nfamily = \"t5\"\nlayers = 1\nhidden = 8\nheads = "
            "1\nsequence = 16\nvocabulary = 32001\nobjective = "
            "\"sequence_to_sequence\"\n[encoder]\nsequence = 24\n[batch]\nglobal = 3\nmicro = "
            "3\n[optimizer]\nlearning_rate = 1\n[data]\ntrain = \"a.h5\"\nstart_token = 7\n",
            "a.toml", {text("data.packing=", packing)})
            .config;
    const auto objective = architecture::objective_of(config.model);
    EXPECT_EQ(objective.find("positions").has_value(), config.model.packs_documents());
    std::vector<Ids> memory;
    for (const auto& field : objective.fields)
      memory.emplace_back(static_cast<std::size_t>(3 * field.per_sample), 9);
    const std::vector<std::span<std::int32_t>> fields(memory.begin(), memory.end());
    const auto reader = make_batch_reader(config);
    const Windows windows(file, SampleForm(config.model));
    EXPECT_FALSE(windows.all_count());
    reader->read(windows, 4, 2, fields);
    EXPECT_EQ(reader->counted(fields, 2), windows.counted(4) + windows.counted(5));
    const std::vector<std::int32_t> bytes(32001, 3);
    EXPECT_EQ(reader->text_bytes(fields, 2, bytes), 3 * reader->counted(fields, 2));
    const PairRows second(*windows.pairs(), 5, 24, 16);
    const auto expect_field = [&](const char* name, const Ids& expected) {
      const Ids& all = memory[objective.field(name)];
      const auto length = static_cast<std::ptrdiff_t>(expected.size());
      EXPECT_EQ(Ids(all.begin() + length, all.begin() + 2 * length), expected) << name;
      EXPECT_EQ(Ids(all.begin() + 2 * length, all.end()), Ids(expected.size())) << name;
    };
    expect_field("source", second.source);
    expect_field("tokens", second.inputs);
    expect_field("targets", second.targets);
    expect_field("source_begin", second.source_begin);
    expect_field("source_end", second.source_end);
    expect_field("key_begin", second.key_begin);
    expect_field("key_end", second.key_end);
    if (config.model.packs_documents()) expect_field("positions", second.positions);
    const Samples samples(file, SampleForm(config.model), 3);
    reader->read(samples, 0, 3, fields);
    EXPECT_EQ(reader->counted(fields, 3), samples.counted(0, 3));
    EXPECT_FALSE(samples.all_count());
  }
}

/// The sources fill samples, and their targets have room.
TEST(PackedPairs, PadTheLargerSideByLessThanOnePercent) {
  const TemporaryFolder folder;
  write_pairs(folder.file("t.h5"), some_pairs(20'000, 60, 8, 8));
  const TokenFile file(folder.file("t.h5"));
  const PackedPairs packed(file, 1024, 256);
  EXPECT_LT(packed.source_padding(), 0.01);
  EXPECT_GE(packed.source_padding(), 0);
  EXPECT_LT(packed.target_padding(), 0.5);
}

TokenizeOptions pair_options(const TemporaryFolder& folder, const std::string& lines) {
  TokenizeOptions options;
  options.inputs = {folder.write("a.jsonl", lines)};
  options.output = folder.file("t.h5");
  return options;
}

TEST(PackedPairs, ComeFromJsonLines) {
  const TemporaryFolder folder;
  const auto summary = tokenize(pair_options(folder,
                                             "{\"source\": \"ab\", \"target\": \"c\"}\n"
                                             "{\"source\": \"\", \"target\": \"\"}\n"
                                             "{\"target\": \"\", \"source\": \"d\", \"id\": 3}\n"
                                             "{\"source\": \"\", \"target\": \"e\"}\n"),
                                [](auto) {});
  EXPECT_EQ(summary.train.documents, 3);
  EXPECT_EQ(summary.train.counted, 5);
  EXPECT_EQ(summary.train.text_bytes, 5);
  const TokenFile file(folder.file("t.h5"));
  file.verify();
  const PackedPairs packed(file, 8, 8);
  ASSERT_EQ(packed.samples(), 1);
  constexpr std::int32_t end = 256;
  EXPECT_EQ(pairs_of(PairRows(packed, 0, 8, 8)),
            (std::vector<PairIds>{
                {{'a', 'b', end}, {'c', end}}, {{'d', end}, {end}}, {{end}, {'e', end}}}));
}

/// "source" alone describes the data, as before pairs.
TEST(PackedPairs, NeedATarget) {
  const TemporaryFolder folder;
  tokenize(pair_options(folder,
                        "{\"text\": \"a\", \"source\": \"web\"}\n"
                        "{\"text\": \"a\", \"target\": 3}\n"
                        "{\"prompt\": \"a\", \"completion\": \"b\", \"source\": \"web\"}\n"),
           [](auto) {});
  const auto error = [&](const std::string& line) {
    const std::string good = "{\"source\": \"a\", \"target\": \"b\"}\n";
    return message_of([&] { tokenize(pair_options(folder, good + line + "\n"), [](auto) {}); });
  };
  expect_mentions(error("{\"source\": \"a\"}"), {"a.jsonl:2: ", "\"source\" with \"target\""});
  expect_mentions(error("{\"target\": \"a\"}"), {"a.jsonl:2: ", "has no \"source\""});
  expect_mentions(error("{\"source\": \"a\", \"target\": [1]}"), {"a.jsonl:2: ", "a list of 1"});
  expect_mentions(error("{\"source\": 1, \"target\": \"a\"}"), {"a.jsonl:2: ", "\"source\" is 1"});
  expect_mentions(error("{\"source\": \"\", \"target\": \"\", \"system\": \"a\"}"),
                  {"a.jsonl:2: ", "member \"system\""});
  expect_mentions(error("{\"prompt\": \"\", \"completion\": \"\", \"target\": \"a\"}"),
                  {"a.jsonl:2: ", "member \"target\""});
}

TEST(PackedPairs, DamagedLinesAreReadOrRejectedWithTheirNumber) {
  const TemporaryFolder folder;
  const auto tokenizer = make_tokenizer("bytes");
  InstructionEncoder encoder(*tokenizer, ChatFormat::none, false);
  std::mt19937 random(3);
  int rejected = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto path = folder.write(
        "a.jsonl", "{\"source\": \"x\", \"target\": \"y\"}\n" +
                       mutated("{\"source\": \"a b\\u00e9\", \"target\": \"c\\n\"}", random));
    try {
      read_json_lines(path, instruction_form, [&](const JsonLine& line) {
        const CountedTokens found = encoder.encode(line);
        std::int64_t tokens = 0;
        for (const auto& [count, counted] : found.runs) tokens += count;
        EXPECT_EQ(tokens, std::ssize(found.ids));
      });
    } catch (const UsageError& error) {
      ++rejected;
      EXPECT_NE(std::string(error.what()).find("a.jsonl:"), std::string::npos) << error.what();
    }
  }
  EXPECT_GT(rejected, 100);
  EXPECT_LT(rejected, 1000);
}

TEST(PackedPairs, RejectFilesWithoutPairs) {
  const TemporaryFolder folder;
  const auto message = [&](const std::string& lines, std::int64_t source) {
    tokenize(pair_options(folder, lines), [](auto) {});
    const TokenFile file(folder.file("t.h5"));
    return message_of([&] {
      const PackedPairs packed(file, source, 8);
      for (std::int64_t s = 0; s < packed.samples(); ++s) PairRows(packed, s, 8, 8);
    });
  };
  const std::string pair = "{\"source\": \"a\", \"target\": \"b\"}\n";
  const std::string completion = "{\"prompt\": \"a\", \"completion\": \"b\"}\n";
  const std::string text = "{\"text\": \"a\"}\n";
  EXPECT_EQ(message(pair, 8), "no error");
  expect_mentions(message(pair, 0), {"sources of 0"});
  expect_mentions(message(text, 8), {"t.h5: document 0 is no pair", "\"source\" and \"target\""});
  expect_mentions(message(completion, 8), {"t.h5: document 0 is no pair"});
  expect_mentions(message(pair + text, 8), {"t.h5: document 1 is no pair"});
  expect_mentions(message(pair + completion, 8), {"t.h5: document 1 is no pair"});
}

}  // namespace
}  // namespace trireme::data
