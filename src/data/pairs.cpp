// Makes pairs of segments and masks tokens. The random values of a sample are drawn in a fixed
// order: cut, pair, other window, masked positions, replacements.
#include <trireme/data/pairs.hpp>

#include <trireme/base/check.hpp>
#include <trireme/data/batch.hpp>

#include <algorithm>
#include <numeric>

namespace trireme::data {

/// The fields by name; `pairs` is empty without a sentence loss.
struct Pairs::Batch {
  std::span<std::int32_t> tokens, segments, targets, rows, pairs;
};

Pairs::Batch Pairs::batch_of(BatchFields fields) const {
  const auto field = [&](std::string_view name) { return fields[objective_.field(name)]; };
  return {field("tokens"), field("segments"), field("targets"), field("rows"),
          objective_.find("pairs") ? field("pairs") : std::span<std::int32_t>()};
}

Pairs::Pairs(const deck::Config& config)
    : objective_(architecture::objective_of(config.model)),
      sequence_(config.model.sequence),
      text_(config.model.text_tokens()),
      masked_(config.model.targets()),
      vocabulary_(config.model.vocabulary),
      loss_(config.model.sentence_loss),
      ids_(deck::special_tokens(config)),
      seed_(static_cast<std::uint64_t>(config.run.seed)) {
  check(text_ >= 2, "samples of two segments with ", text_, " tokens of text");
}

void Pairs::expect_usable(const Windows& windows) const {
  check_usage(!windows.has_mask(), windows.path(),
              ": has a mask of counted tokens, and a model that predicts masked tokens cannot use "
              "it; train a model with objective = \"next_token\", or tokenize plain text");
  check_usage(loss_ != SentenceLoss::next || windows.count() > 1, windows.path(),
              ": has tokens for one sample only, but [model] sentence_loss = \"next\" takes second "
              "segments from other samples; tokenize more text, or choose \"order\" or \"none\"");
}

void Pairs::read(const Samples& samples, std::int64_t first, std::int64_t count,
                 BatchFields fields) const {
  const Batch batch = batch_of(fields);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto [file, window] = samples.place(first + i);
    make(SampleDraw(seed_, training_stream, first + i), samples.windows(file), window, i, batch);
  }
}

void Pairs::read(const Windows& windows, std::int64_t first, std::int64_t count,
                 BatchFields fields) const {
  const Batch batch = batch_of(fields);
  for (std::int64_t i = 0; i < count; ++i)
    make(SampleDraw(0, evaluation_stream, first + i), windows, first + i, i, batch);
}

void Pairs::make(SampleDraw draw, const Windows& windows, std::int64_t window, std::int64_t place,
                 const Batch& batch) const {
  check(windows.sequence() == text_, "windows of ", windows.sequence(), " tokens, expected ",
        text_);
  std::vector<std::int32_t> text(static_cast<std::size_t>(text_));
  std::vector<std::int32_t> unused(text.size());
  windows.read(window, text, unused);
  std::int64_t cut = 1 + draw.below(text_ - 1);
  const bool changed = draw.below(2) == 1;
  if (loss_ == SentenceLoss::next && changed) {
    const std::int64_t other = draw.below(windows.count() - 1);
    std::vector<std::int32_t> others(text.size());
    windows.read(other < window ? other : other + 1, others, unused);
    std::copy(others.begin() + cut, others.end(), text.begin() + cut);
  } else if (loss_ == SentenceLoss::order && changed) {
    std::rotate(text.begin(), text.begin() + cut, text.end());
    cut = text_ - cut;
  }

  const std::span<std::int32_t> tokens = row(batch.tokens, place, sequence_);
  const std::span<std::int32_t> segments = row(batch.segments, place, sequence_);
  auto to = tokens.begin();
  *to++ = static_cast<std::int32_t>(ids_.begin);
  to = std::copy(text.begin(), text.begin() + cut, to);
  *to++ = static_cast<std::int32_t>(ids_.separator);
  std::fill(segments.begin(), segments.begin() + (to - tokens.begin()), 0);
  std::fill(segments.begin() + (to - tokens.begin()), segments.end(), 1);
  to = std::copy(text.begin() + cut, text.end(), to);
  *to = static_cast<std::int32_t>(ids_.separator);
  mask(draw, cut, place, batch);
  if (loss_ == SentenceLoss::none) return;
  const std::int64_t room = std::ssize(batch.pairs);
  batch.rows[static_cast<std::size_t>(room * masked_ + place)] =
      static_cast<std::int32_t>(place * sequence_);
  batch.pairs[static_cast<std::size_t>(place)] = changed ? 1 : 0;
}

void Pairs::mask(SampleDraw& draw, std::int64_t first_length, std::int64_t place,
                 const Batch& batch) const {
  // Chooses the masked tokens with the first steps of a Fisher-Yates shuffle.
  std::vector<std::int64_t> chosen(static_cast<std::size_t>(text_));
  std::iota(chosen.begin(), chosen.end(), 0);
  for (std::int64_t k = 0; k < masked_; ++k)
    std::swap(chosen[static_cast<std::size_t>(k)],
              chosen[static_cast<std::size_t>(k + draw.below(text_ - k))]);
  std::sort(chosen.begin(), chosen.begin() + masked_);

  const std::span<std::int32_t> tokens = row(batch.tokens, place, sequence_);
  const std::span<std::int32_t> targets = row(batch.targets, place, masked_);
  const std::span<std::int32_t> rows = row(batch.rows, place, masked_);
  for (std::size_t k = 0; k < targets.size(); ++k) {
    const std::int64_t at = chosen[k] + (chosen[k] < first_length ? 1 : 2);
    std::int32_t& token = tokens[static_cast<std::size_t>(at)];
    targets[k] = token;
    rows[k] = static_cast<std::int32_t>(place * sequence_ + at);
    const std::int64_t fate = draw.below(10);
    if (fate < 8)
      token = static_cast<std::int32_t>(ids_.mask);
    else if (fate == 8)
      token = static_cast<std::int32_t>(draw.below(vocabulary_));
  }
}

}  // namespace trireme::data
