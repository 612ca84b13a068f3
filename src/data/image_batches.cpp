#include <trireme/data/image_batches.hpp>

#include <trireme/base/check.hpp>
#include <trireme/data/batch.hpp>
#include <trireme/data/samples.hpp>

#include <algorithm>

namespace trireme::data {

ImageBatches::ImageBatches(const deck::Config& config)
    : sequence_(config.model.sequence), words_(config.model.vision.pixel_words()) {
  const architecture::TrainingObjective objective = architecture::objective_of(config.model);
  tokens_ = objective.field("tokens");
  targets_ = objective.field("targets");
  rows_ = objective.field(architecture::image_rows_field);
  pixels_ = objective.field(architecture::pixels_field);
  key_ends_ = objective.find(architecture::key_end_field);
  sample_tokens_ = objective.find("sample_tokens");
}

void ImageBatches::expect_usable(const Windows& windows) const {
  for (std::int64_t i = 0; i < windows.count(); ++i)
    if (windows.counted(i) > 0) return;
  throw UsageError(text(windows.path(), ": none of the targets of its ", windows.count(),
                        " documents counts in the loss; tokenize more completions or answers"));
}

/// The model also computes samples that are not filled: they have no images.
void ImageBatches::clear(std::int64_t count, BatchFields fields) const {
  std::ranges::fill(fields[rows_].subspan(static_cast<std::size_t>(count * sequence_)), -1);
  if (sample_tokens_) std::ranges::fill(fields[*sample_tokens_], 0);
  if (!key_ends_) return;
  const auto filled = static_cast<std::size_t>(count * sequence_);
  count_up(fields[*key_ends_].subspan(filled), sequence_);
  for (std::int32_t& end : fields[*key_ends_].subspan(filled)) ++end;
}

void ImageBatches::read(const Samples& samples, std::int64_t first, std::int64_t count,
                        BatchFields fields) const {
  clear(count, fields);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto [file, window] = samples.place(first + i);
    read_sample(samples.windows(file), window, i, fields);
  }
}

void ImageBatches::read(const Windows& windows, std::int64_t first, std::int64_t count,
                        BatchFields fields) const {
  clear(count, fields);
  for (std::int64_t i = 0; i < count; ++i) read_sample(windows, first + i, i, fields);
}

void ImageBatches::read_sample(const Windows& windows, std::int64_t window, std::int64_t place,
                               BatchFields fields) const {
  check(windows.documents() != nullptr, windows.path(), ": expected documents with images");
  windows.documents()->read(window, {.inputs = row(fields[tokens_], place, sequence_),
                                     .targets = row(fields[targets_], place, sequence_),
                                     .rows = row(fields[rows_], place, sequence_),
                                     .pixels = row(fields[pixels_], place, words_)});
  if (key_ends_)
    place_key_ends(row(fields[rows_], place, sequence_), row(fields[*key_ends_], place, sequence_));
  if (!sample_tokens_) return;
  const std::int64_t tokens = windows.tokens(window);
  std::ranges::fill(
      row(fields[*sample_tokens_], place, sequence_).first(static_cast<std::size_t>(tokens)),
      static_cast<std::int32_t>(tokens));
}

std::span<std::int32_t> ImageBatches::targets(BatchFields fields, std::int64_t count) const {
  return fields[targets_].first(static_cast<std::size_t>(count * sequence_));
}

std::int64_t ImageBatches::counted(BatchFields fields, std::int64_t count) const {
  return counted_targets(targets(fields, count));
}

std::int64_t ImageBatches::text_bytes(BatchFields fields, std::int64_t count,
                                      const std::vector<std::int32_t>& bytes_of_token) const {
  return bytes_of_targets(targets(fields, count), bytes_of_token);
}

}  // namespace trireme::data
