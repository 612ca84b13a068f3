// Fills batches of the objective next_token, counts targets, and copies a context rank's share of
// the fields.
#include <trireme/data/batch_reader.hpp>

#include <trireme/architecture/objective.hpp>
#include <trireme/base/check.hpp>
#include <trireme/data/batch.hpp>
#include <trireme/data/image_batches.hpp>
#include <trireme/data/pair_batches.hpp>
#include <trireme/data/pairs.hpp>
#include <trireme/data/span_batches.hpp>

#include <algorithm>
#include <optional>

namespace trireme::data {
namespace {

/// The target of each token is the next token.
class NextTokens final : public BatchReader {
 public:
  explicit NextTokens(const deck::ModelConfig& model)
      : sequence_(model.sequence),
        tokens_(architecture::objective_of(model).field("tokens")),
        targets_(architecture::objective_of(model).field("targets")),
        positions_(architecture::objective_of(model).find("positions")),
        sample_tokens_(architecture::objective_of(model).find("sample_tokens")) {
    for (std::int64_t n = 2; n <= model.predicts; ++n)
      further_.push_back({architecture::objective_of(model).field(text("tokens_", n)),
                          architecture::objective_of(model).field(text("targets_", n))});
  }

  void expect_usable(const Windows& windows) const override {
    if (!windows.has_mask()) return;
    for (std::int64_t i = 0; i < windows.count(); ++i)
      if (windows.counted(i) > 0) return;
    throw UsageError(text(windows.path(), ": none of the targets of its ", windows.count(),
                          " samples of ", windows.sequence(),
                          " tokens counts in the loss; tokenize more completions or answers"));
  }

  void read(const Samples& samples, std::int64_t first, std::int64_t count,
            BatchFields fields) const override {
    samples.read(first, count, front(fields[tokens_], count), front(fields[targets_], count),
                 positions(fields, count));
    shift(fields, count);
    count_tokens(fields, count, [&](std::int64_t i) {
      const auto [file, window] = samples.place(first + i);
      return samples.windows(file).tokens(window);
    });
  }
  void read(const Windows& windows, std::int64_t first, std::int64_t count,
            BatchFields fields) const override {
    windows.read(first, count, front(fields[tokens_], count), front(fields[targets_], count),
                 positions(fields, count));
    shift(fields, count);
    count_tokens(fields, count, [&](std::int64_t i) { return windows.tokens(first + i); });
  }

  std::int64_t counted(BatchFields fields, std::int64_t count) const override {
    return counted_targets(front(fields[targets_], count));
  }
  std::int64_t text_bytes(BatchFields fields, std::int64_t count,
                          const std::vector<std::int32_t>& bytes_of_token) const override {
    return bytes_of_targets(front(fields[targets_], count), bytes_of_token);
  }

 private:
  std::span<std::int32_t> front(std::span<std::int32_t> field, std::int64_t count) const {
    return field.first(static_cast<std::size_t>(count * sequence_));
  }

  /// The positions of the first `count` samples, empty if the objective has no positions. Sets the
  /// batch's positions to 0, because the model also computes samples that are not filled.
  std::span<std::int32_t> positions(BatchFields fields, std::int64_t count) const {
    if (!positions_) return {};
    std::ranges::fill(fields[*positions_], 0);
    return front(fields[*positions_], count);
  }

  /// Fills the tokens of samples. Samples that are not filled are padding.
  template <class TokensOf>
  void count_tokens(BatchFields fields, std::int64_t count, const TokensOf& tokens_of) const {
    if (!sample_tokens_) return;
    const std::span<std::int32_t> all = fields[*sample_tokens_];
    std::ranges::fill(all, 0);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t tokens = tokens_of(i);
      std::ranges::fill(row(all, i, sequence_).first(static_cast<std::size_t>(tokens)),
                        static_cast<std::int32_t>(tokens));
    }
  }

  /// Fills the fields of further predicted tokens: row i of the n-th token has token i + n − 1 and
  /// its target. There is no target after the sample, or in another packed document; without a
  /// later token, the row has the sample's last token, which no target depends on.
  void shift(BatchFields fields, std::int64_t count) const {
    for (std::size_t module = 0; module < further_.size(); ++module)
      for (std::int64_t i = 0; i < count; ++i) {
        const auto of = [&](std::size_t field) { return row(fields[field], i, sequence_); };
        const auto distance = static_cast<std::int64_t>(module) + 1;
        shift_left(of(tokens_), distance, of(further_[module].tokens));
        shift_targets(of(targets_), positions_ ? of(*positions_) : std::span<std::int32_t>(),
                      distance, of(further_[module].targets));
      }
  }

  static void shift_left(std::span<const std::int32_t> from, std::int64_t distance,
                         std::span<std::int32_t> to) {
    for (std::int64_t i = 0; i < std::ssize(from); ++i)
      to[index(i)] = from[index(std::min(i + distance, std::ssize(from) - 1))];
  }
  static void shift_targets(std::span<const std::int32_t> from,
                            std::span<const std::int32_t> positions, std::int64_t distance,
                            std::span<std::int32_t> to) {
    for (std::int64_t i = 0; i < std::ssize(from); ++i) {
      const std::int64_t at = i + distance;
      const bool same =
          at < std::ssize(from) &&
          (positions.empty() || positions[index(at)] == positions[index(i)] + distance);
      to[index(i)] = same ? from[index(at)] : uncounted;
    }
  }
  static std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

  /// Indices of the fields of a further predicted token.
  struct Further {
    std::size_t tokens;
    std::size_t targets;
  };

  std::int64_t sequence_;
  std::size_t tokens_;
  std::size_t targets_;
  std::optional<std::size_t> positions_, sample_tokens_;
  std::vector<Further> further_;
};

}  // namespace

std::int64_t counted_targets(std::span<const std::int32_t> targets) {
  return std::ssize(targets) - std::ranges::count(targets, uncounted);
}

std::int64_t bytes_of_targets(std::span<const std::int32_t> targets,
                              const std::vector<std::int32_t>& bytes_of_token) {
  std::int64_t bytes = 0;
  for (const std::int32_t token : targets)
    if (token != uncounted) bytes += bytes_of_token[static_cast<std::size_t>(token)];
  return bytes;
}

std::unique_ptr<BatchReader> make_batch_reader(const deck::Config& config) {
  switch (config.model.objective) {
    case Objective::next_token:
      if (config.model.vision.present()) return std::make_unique<ImageBatches>(config);
      return std::make_unique<NextTokens>(config.model);
    case Objective::masked_token:
      return std::make_unique<Pairs>(config);
    case Objective::corrupted_spans:
      return std::make_unique<SpanBatches>(config);
    case Objective::sequence_to_sequence:
      return std::make_unique<PairBatches>(config);
  }
  return nullptr;
}

namespace {

using Field = std::span<std::int32_t>;

Field part(Field field, std::int64_t first, std::int64_t count) {
  return field.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
}

void take_tokens(const layout::TokenPlaces& places, std::int64_t sequence, Field whole, Field own) {
  const auto samples = std::ssize(whole) / sequence;
  auto to = own.begin();
  for (std::int64_t b = 0; b < samples; ++b)
    for (const layout::Chunk& chunk : {places.head, places.tail})
      to = std::ranges::copy(part(whole, b * sequence + chunk.first, chunk.count), to).out;
}

void renumber(const layout::TokenPlaces& places, std::int64_t sequence, Field whole, Field own) {
  std::ranges::transform(whole, own.begin(), [&](std::int32_t row) {
    const std::int64_t token = places.token_at(row % sequence);
    return static_cast<std::int32_t>(token < 0 ? -1 : row / sequence * places.held + token);
  });
}

}  // namespace

void take_own_fields(const architecture::TrainingObjective& objective,
                     const architecture::Shard& shard, const architecture::RankSizes& sizes,
                     std::int64_t sequence, BatchFields whole, BatchFields own) {
  using architecture::Rows;
  const layout::TokenPlaces places = shard.places(sequence);
  for (std::size_t i = 0; i < objective.fields.size(); ++i) {
    const architecture::BatchField& field = objective.fields[i];
    check(std::ssize(own[i]) == rows_of(field.rows, sizes), "field ", field.name, " has ",
          own[i].size(), " numbers, expected ", rows_of(field.rows, sizes));
    const bool of_tokens =
        field.rows == Rows::tokens || (field.rows == Rows::targets && !objective.chooses_targets());
    if (of_tokens) {
      take_tokens(places, sequence, whole[i], own[i]);
    } else if (field.rows == Rows::head_rows) {
      renumber(places, sequence, whole[i], own[i]);
    } else {
      const layout::Slice mine = shard.context_part(std::ssize(whole[i]));
      std::ranges::copy(part(whole[i], mine.offset, mine.extent), own[i].begin());
    }
  }
}

}  // namespace trireme::data
