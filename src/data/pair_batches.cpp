#include <trireme/data/pair_batches.hpp>

#include <trireme/base/check.hpp>
#include <trireme/data/batch.hpp>

#include <algorithm>

namespace trireme::data {

PairBatches::PairBatches(const deck::Config& config)
    : objective_(architecture::objective_of(config.model)),
      source_(config.model.encoder.sequence),
      sequence_(config.model.sequence),
      start_(static_cast<std::int32_t>(deck::span_ids(config).start)) {}

/// Sets all fields to 0, because the model also computes samples that are not filled. Their tokens
/// see no keys.
void PairBatches::clear(BatchFields fields) const {
  for (const std::span<std::int32_t> field : fields) std::ranges::fill(field, 0);
}

void PairBatches::read(const Samples& samples, std::int64_t first, std::int64_t count,
                       BatchFields fields) const {
  clear(fields);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto [file, window] = samples.place(first + i);
    read_sample(samples.windows(file), window, i, fields);
  }
}

void PairBatches::read(const Windows& windows, std::int64_t first, std::int64_t count,
                       BatchFields fields) const {
  clear(fields);
  for (std::int64_t i = 0; i < count; ++i) read_sample(windows, first + i, i, fields);
}

void PairBatches::read_sample(const Windows& windows, std::int64_t window, std::int64_t place,
                              BatchFields fields) const {
  check(windows.pairs() != nullptr, windows.path(), ": expected samples of pairs");
  const auto field = [&](std::string_view name, std::int64_t length) {
    const auto number = objective_.find(name);
    return number ? row(fields[*number], place, length) : std::span<std::int32_t>();
  };
  windows.pairs()->read(window, start_,
                        {.source = field("source", source_),
                         .inputs = field("tokens", sequence_),
                         .targets = field("targets", sequence_),
                         .positions = field("positions", sequence_),
                         .source_begin = field("source_begin", source_),
                         .source_end = field("source_end", source_),
                         .key_begin = field("key_begin", sequence_),
                         .key_end = field("key_end", sequence_)});
}

std::span<std::int32_t> PairBatches::targets(BatchFields fields, std::int64_t count) const {
  return fields[objective_.field("targets")].first(static_cast<std::size_t>(count * sequence_));
}

std::int64_t PairBatches::counted(BatchFields fields, std::int64_t count) const {
  return counted_targets(targets(fields, count));
}

std::int64_t PairBatches::text_bytes(BatchFields fields, std::int64_t count,
                                     const std::vector<std::int32_t>& bytes_of_token) const {
  return bytes_of_targets(targets(fields, count), bytes_of_token);
}

}  // namespace trireme::data
