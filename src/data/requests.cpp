// Requests as samples of a batch: tokens, targets, sources and images.
#include <trireme/data/requests.hpp>

#include <trireme/base/check.hpp>
#include <trireme/data/batch.hpp>
#include <trireme/data/token_source.hpp>

#include <algorithm>
#include <utility>

namespace trireme::data {

Requests::Requests(std::vector<Request> requests, std::int64_t sequence)
    : requests_(std::move(requests)), sequence_(sequence) {
  for (const Request& r : requests_)
    check(
        r.context >= 1 && r.context < std::ssize(r.tokens) && std::ssize(r.tokens) <= sequence + 1,
        "a request of ", r.tokens.size(), " tokens, ", r.context,
        " of them not scored, does not fit a sequence of ", sequence);
}

Requests::Requests(std::vector<Request> requests, std::int64_t sequence, std::int64_t ids)
    : requests_(std::move(requests)), sequence_(sequence), ids_(ids), first_{0} {
  for (const Request& r : requests_) {
    check(r.context >= 1 && r.context <= std::ssize(r.tokens) && std::ssize(r.tokens) <= sequence,
          "a request of ", r.tokens.size(), " tokens, ", r.context,
          " of them given, does not fit a sequence of ", sequence);
    first_.push_back(first_.back() + std::ssize(r.tokens) - r.context + 1);
  }
}

void Requests::read(std::int64_t first, std::int64_t count, std::span<std::int32_t> inputs,
                    std::span<std::int32_t> targets) const {
  for (std::int64_t i = 0; i < count; ++i) {
    const Request& r = request(first + i);
    const auto row = [&](std::span<std::int32_t> all) {
      return all.subspan(static_cast<std::size_t>(i * sequence_),
                         static_cast<std::size_t>(sequence_));
    };
    const auto pairs = std::ssize(r.tokens) - (wants_tokens() ? 0 : 1);
    std::ranges::fill(row(inputs), 0);
    std::ranges::fill(row(targets), uncounted);
    if (wants_tokens()) {
      std::ranges::copy(r.tokens, row(inputs).begin());
      std::fill_n(row(targets).begin() + (r.context - 1), pairs - r.context + 1,
                  static_cast<std::int32_t>(uncounted - ids_));
      continue;
    }
    std::copy_n(r.tokens.begin(), pairs, row(inputs).begin());
    std::copy(r.tokens.begin() + r.context, r.tokens.end(), row(targets).begin() + (r.context - 1));
  }
}

void Requests::read(std::int64_t first, std::int64_t count,
                    const architecture::TrainingObjective& objective, BatchFields fields) const {
  for (std::size_t i = 0; i < fields.size(); ++i)
    std::ranges::fill(fields[i], objective.fields[i].at_head ? uncounted : 0);
  if (const auto positions = objective.find("positions")) count_up(fields[*positions], sequence_);
  if (const auto tokens = objective.find("sample_tokens"))
    for (std::int64_t i = 0; i < count; ++i) {
      const auto inputs = std::ssize(request(first + i).tokens) - (wants_tokens() ? 0 : 1);
      std::fill_n(row(fields[*tokens], i, sequence_).begin(), inputs,
                  static_cast<std::int32_t>(inputs));
    }
  read(first, count, fields[objective.field("tokens")], fields[objective.field("targets")]);
  if (objective.find("source")) read_sources(first, count, objective, fields);
  if (objective.find(architecture::pixels_field)) read_images(first, count, objective, fields);
}

/// Rows without an image are −1, and so are those of samples without a request.
void Requests::read_images(std::int64_t first, std::int64_t count,
                           const architecture::TrainingObjective& objective,
                           BatchFields fields) const {
  const std::span<std::int32_t> rows = fields[objective.field(architecture::image_rows_field)];
  const std::span<std::int32_t> pixels = fields[objective.field(architecture::pixels_field)];
  const std::int64_t words = std::ssize(pixels) / (std::ssize(rows) / sequence_);
  std::ranges::fill(rows, -1);
  for (std::int64_t i = 0; i < count; ++i) {
    const Request& r = request(first + i);
    if (r.image_rows.empty()) continue;
    check(std::ssize(r.image_rows) <= sequence_ && std::ssize(r.pixels) == words, "a request has ",
          r.image_rows.size(), " rows and ", r.pixels.size(), " words of images, expected at most ",
          sequence_, " and ", words);
    std::ranges::copy(r.image_rows, row(rows, i, sequence_).begin());
    std::ranges::copy(r.pixels, row(pixels, i, words).begin());
  }
}

/// Each sample has one source, which all its tokens see. Samples without a request see no keys.
void Requests::read_sources(std::int64_t first, std::int64_t count,
                            const architecture::TrainingObjective& objective,
                            BatchFields fields) const {
  const std::span<std::int32_t> source = fields[objective.field("source")];
  const std::int64_t samples = std::ssize(fields[objective.field("tokens")]) / sequence_;
  const std::int64_t length = std::ssize(source) / samples;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::vector<std::int32_t>& tokens = request(first + i).source;
    check(!tokens.empty() && std::ssize(tokens) <= length, "a request has a source of ",
          tokens.size(), " tokens, expected 1 to ", length);
    std::ranges::copy(tokens, row(source, i, length).begin());
    const auto end = static_cast<std::int32_t>(tokens.size());
    std::ranges::fill(row(fields[objective.field("source_end")], i, length), end);
    std::ranges::fill(row(fields[objective.field("key_end")], i, sequence_), end);
  }
}

}  // namespace trireme::data
