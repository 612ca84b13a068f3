#include <trireme/data/span_batches.hpp>

#include <trireme/base/check.hpp>
#include <trireme/data/batch.hpp>

namespace trireme::data {

SpanBatches::SpanBatches(const deck::Config& config)
    : objective_(architecture::objective_of(config.model)),
      lengths_(config.model.spans()),
      ids_(deck::span_ids(config)),
      seed_(static_cast<std::uint64_t>(config.run.seed)) {}

void SpanBatches::expect_usable(const Windows& windows) const {
  check_usage(
      !windows.has_mask(), windows.path(),
      ": has a mask of counted tokens, and a model that predicts corrupted spans cannot use "
      "it; tokenize plain text, or train a model with objective = \"next_token\"");
}

void SpanBatches::read(const Samples& samples, std::int64_t first, std::int64_t count,
                       BatchFields fields) const {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto [file, window] = samples.place(first + i);
    make({seed_, training_stream, first + i}, samples.windows(file), window, i, fields);
  }
}

void SpanBatches::read(const Windows& windows, std::int64_t first, std::int64_t count,
                       BatchFields fields) const {
  for (std::int64_t i = 0; i < count; ++i)
    make({0, evaluation_stream, first + i}, windows, first + i, i, fields);
}

void SpanBatches::make(SampleDraw draw, const Windows& windows, std::int64_t window,
                       std::int64_t place, BatchFields fields) const {
  check(windows.sequence() == lengths_.raw, "windows of ", windows.sequence(), " tokens, expected ",
        lengths_.raw);
  std::vector<std::int32_t> text(static_cast<std::size_t>(lengths_.raw));
  std::vector<std::int32_t> unused(text.size());
  windows.read(window, text, unused);
  const auto field = [&](std::string_view name, std::int64_t length) {
    return row(fields[objective_.field(name)], place, length);
  };
  const std::span<std::int32_t> targets = field("targets", lengths_.target);
  corrupt_spans(lengths_,
                {static_cast<std::int32_t>(ids_.sentinel), static_cast<std::int32_t>(ids_.end)},
                draw, text, field("source", lengths_.source), targets);
  shift_right(targets, static_cast<std::int32_t>(ids_.start), field("tokens", lengths_.target));
}

}  // namespace trireme::data
