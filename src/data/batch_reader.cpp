#include <trireme/data/batch_reader.hpp>

#include <trireme/architecture/objective.hpp>
#include <trireme/base/check.hpp>
#include <trireme/data/pairs.hpp>

#include <algorithm>
#include <optional>

namespace trireme::data {
namespace {

/// Tokens of a window, and the token after each.
class NextTokens final : public BatchReader {
 public:
  explicit NextTokens(const deck::ModelConfig& model)
      : sequence_(model.sequence),
        tokens_(architecture::objective_of(model).field("tokens")),
        targets_(architecture::objective_of(model).field("targets")),
        positions_(architecture::objective_of(model).find("positions")) {}

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
  }
  void read(const Windows& windows, std::int64_t first, std::int64_t count,
            BatchFields fields) const override {
    windows.read(first, count, front(fields[tokens_], count), front(fields[targets_], count),
                 positions(fields, count));
  }

  std::int64_t counted(BatchFields fields, std::int64_t count) const override {
    return count * sequence_ - std::ranges::count(front(fields[targets_], count), uncounted);
  }
  std::int64_t text_bytes(BatchFields fields, std::int64_t count,
                          const std::vector<std::int32_t>& bytes_of_token) const override {
    std::int64_t bytes = 0;
    for (const std::int32_t token : front(fields[targets_], count))
      if (token != uncounted) bytes += bytes_of_token[static_cast<std::size_t>(token)];
    return bytes;
  }

 private:
  std::span<std::int32_t> front(std::span<std::int32_t> field, std::int64_t count) const {
    return field.first(static_cast<std::size_t>(count * sequence_));
  }

  /// Positions of the first samples; those of the others, which are computed too, become 0.
  std::span<std::int32_t> positions(BatchFields fields, std::int64_t count) const {
    if (!positions_) return {};
    std::ranges::fill(fields[*positions_], 0);
    return front(fields[*positions_], count);
  }

  std::int64_t sequence_;
  std::size_t tokens_;
  std::size_t targets_;
  std::optional<std::size_t> positions_;
};

}  // namespace

std::unique_ptr<BatchReader> make_batch_reader(const deck::Config& config) {
  switch (config.model.objective) {
    case Objective::next_token:
      return std::make_unique<NextTokens>(config.model);
    case Objective::masked_token:
      return std::make_unique<Pairs>(config);
  }
  return nullptr;
}

}  // namespace trireme::data
