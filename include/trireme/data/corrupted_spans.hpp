#pragma once

#include <trireme/data/sample_draw.hpp>
#include <trireme/deck/span_lengths.hpp>

#include <cstdint>
#include <span>

namespace trireme::data {

using deck::span_lengths;
using deck::SpanLengths;

/// Special tokens of corrupted samples.
struct SpanTokens {
  std::int32_t first_sentinel = 0;  ///< sentinel i is first_sentinel − i: T5's <extra_id_i>
  std::int32_t end = 0;             ///< of sources and targets
};

/// Corrupts the spans of raw [raw]. source [source]: the text with sentinel i in place of span i,
/// then the end. target [target]: sentinel 0, span 0, sentinel 1, span 1, …, then the end, without
/// a sentinel after the last span. A sample begins with kept tokens and ends with a span. All ways
/// to divide the kept tokens and the noise into `spans` parts are equally likely. Does not
/// allocate.
void corrupt_spans(const SpanLengths& lengths, const SpanTokens& ids, SampleDraw draw,
                   std::span<const std::int32_t> raw, std::span<std::int32_t> source,
                   std::span<std::int32_t> target);

/// inputs[0] = start, inputs[i] = targets[i − 1]: the decoder's inputs. `inputs` is not `targets`.
void shift_right(std::span<const std::int32_t> targets, std::int32_t start,
                 std::span<std::int32_t> inputs);

}  // namespace trireme::data
