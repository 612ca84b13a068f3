// The fields of further predicted tokens, against loops over the fields of the next token.
#include <trireme/data/batch_reader.hpp>

#include "data/support.hpp"

#include <algorithm>
#include <span>
#include <vector>

namespace trireme::data {
namespace {

constexpr std::int64_t batch_samples = 6;

/// The batch of the first samples of a model that predicts 4 tokens.
struct FurtherBatch {
  deck::Config config;
  architecture::TrainingObjective objective;
  std::vector<std::vector<std::int32_t>> memory;

  FurtherBatch(const TokenFile& file, std::int64_t sequence, Packing packing, bool trains) {
    config.model.sequence = sequence;
    config.model.vocabulary = 300;
    config.model.predicts = 4;
    config.model.packing = packing;
    objective = architecture::objective_of(config.model);
    std::vector<std::span<std::int32_t>> fields;
    for (const auto& field : objective.fields)
      memory.emplace_back(static_cast<std::size_t>(batch_samples * field.per_sample), -7);
    fields.assign(memory.begin(), memory.end());
    const auto reader = make_batch_reader(config);
    if (trains)
      reader->read(Samples(file, {sequence, packing}, 3), 0, batch_samples, fields);
    else
      reader->read(Windows(file, {sequence, packing}), 0, batch_samples, fields);
  }

  std::span<const std::int32_t> field(const std::string& name, std::int64_t sample) const {
    const auto S = static_cast<std::size_t>(config.model.sequence);
    return std::span(memory[objective.field(name)])
        .subspan(static_cast<std::size_t>(sample) * S, S);
  }
};

/// Documents of 1, 2, … tokens, of which every third does not count.
std::string write_further_documents(const testing::TemporaryFolder& folder) {
  const std::string path = folder.file("t.h5");
  TokenFileWriter writer(path, "test", 300);
  int d = 0;
  for (const auto& document : some_documents(30, 299)) {
    writer.append(document, ++d % 3 != 0);
    writer.end_document(10);
  }
  writer.commit("test");
  return path;
}

/// Numbers of the documents of a sample, counted from its positions: each begins at position 0.
std::vector<int> further_documents(std::span<const std::int32_t> positions) {
  std::vector<int> numbers;
  for (const std::int32_t position : positions)
    numbers.push_back((numbers.empty() ? 0 : numbers.back()) + (position == 0 ? 1 : 0));
  return numbers;
}

TEST(FurtherTokens, AreLaterTokensOfTheSameDocument) {
  const testing::TemporaryFolder folder;
  const TokenFile file(write_further_documents(folder));
  for (const Packing packing : {Packing::none, Packing::documents})
    for (const bool trains : {false, true}) {
      SCOPED_TRACE(text(packing == Packing::none ? "windows" : "documents", trains));
      const std::int64_t S = 31;
      const FurtherBatch batch(file, S, packing, trains);
      std::int64_t with_target = 0, crossing = 0;
      for (std::int64_t b = 0; b < batch_samples; ++b)
        for (std::int64_t n = 2; n <= 4; ++n) {
          const auto tokens = batch.field("tokens", b), targets = batch.field("targets", b);
          const auto further = batch.field(text("tokens_", n), b);
          const auto wanted = batch.field(text("targets_", n), b);
          std::vector<int> document(static_cast<std::size_t>(S), 0);
          if (packing == Packing::documents)
            document = further_documents(batch.field("positions", b));
          for (std::int64_t i = 0; i < S; ++i) {
            const auto at = static_cast<std::size_t>(i);
            const auto later = static_cast<std::size_t>(i + n - 1);
            const bool inside = i + n - 1 < S;
            const bool same = inside && document[later] == document[at];
            EXPECT_EQ(further[at], inside ? tokens[later] : tokens.back());
            EXPECT_EQ(wanted[at], same ? targets[later] : uncounted) << i << ", " << n;
            with_target += wanted[at] != uncounted ? 1 : 0;
            crossing += inside && !same && targets[later] != uncounted ? 1 : 0;
            // The target follows the token that the module reads.
            const bool goes_on = i + n < S && document[later + 1] == document[at];
            if (same && goes_on && wanted[at] != uncounted) {
              EXPECT_EQ(wanted[at], tokens[later + 1]);
            }
          }
        }
      EXPECT_GT(with_target, 100);
      EXPECT_EQ(crossing > 0, packing == Packing::documents);
    }
}

}  // namespace
}  // namespace trireme::data
