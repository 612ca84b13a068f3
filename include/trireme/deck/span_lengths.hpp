#pragma once

#include <cstdint>

namespace trireme::deck {

/// Numbers of tokens of a sample whose spans are corrupted, equal for all samples.
struct SpanLengths {
  std::int64_t raw = 0;     ///< consecutive tokens of text
  std::int64_t noise = 0;   ///< tokens of text in all spans
  std::int64_t spans = 0;   ///< number of spans, each with a sentinel in source and target
  std::int64_t source = 0;  ///< raw − noise + spans + 1
  std::int64_t target = 0;  ///< noise + spans + 1
};

/// Lengths of samples whose sources have exactly `source` tokens, so that no token is padding:
/// the most raw tokens that give this source, and with a density of 0.5 targets that are not longer
/// than sources. T5's rule (random_spans_helper and random_spans_noise_mask of Raffel et al. 2020,
/// arXiv 1910.10683): noise = round(raw · density), spans = round(noise / mean_span), each at least
/// 1, halves to even. UsageError unless source ≥ 3, 0 < density ≤ 0.9, mean_span ≥ 1, and a token
/// of text is kept before each span.
SpanLengths span_lengths(std::int64_t source, double density, double mean_span);

}  // namespace trireme::deck
