#include <trireme/data/corrupted_spans.hpp>

#include <trireme/base/check.hpp>

#include <algorithm>
#include <utility>

namespace trireme::data {
namespace {

/// Divides items into segments. Each item begins a segment with the probability (segments left) /
/// (items left): selection sampling, Knuth, The Art of Computer Programming, section 3.4.2.
class Segments {
 public:
  Segments(std::int64_t items, std::int64_t segments) : items_(items), segments_(segments) {}

  /// Length of the next segment.
  std::size_t next(SampleDraw& draw) {
    const std::int64_t before = items_--;
    if (--segments_ == 0) items_ = 0;
    while (items_ > 0 && draw.below(items_) >= segments_) --items_;
    return static_cast<std::size_t>(before - items_);
  }

 private:
  std::int64_t items_, segments_;  // left
};

}  // namespace

void corrupt_spans(const SpanLengths& lengths, const SpanTokens& ids, SampleDraw draw,
                   std::span<const std::int32_t> raw, std::span<std::int32_t> source,
                   std::span<std::int32_t> target) {
  check(std::ssize(raw) == lengths.raw && std::ssize(source) == lengths.source &&
            std::ssize(target) == lengths.target,
        "corrupts ", raw.size(), " tokens to ", source.size(), " and ", target.size(),
        ", expected ", lengths.raw, ", ", lengths.source, " and ", lengths.target);
  Segments kept(lengths.raw - lengths.noise, lengths.spans);
  Segments noise(lengths.noise, lengths.spans);
  auto from = raw.begin();
  auto to_source = source.begin(), to_target = target.begin();
  const auto move = [&](std::size_t count, auto& to) {
    to = std::copy_n(from, count, to);
    from += static_cast<std::ptrdiff_t>(count);
  };
  for (std::int64_t i = 0; i < lengths.spans; ++i) {
    move(kept.next(draw), to_source);
    *to_source++ = *to_target++ = ids.first_sentinel - static_cast<std::int32_t>(i);
    move(noise.next(draw), to_target);
  }
  *to_source = *to_target = ids.end;
}

void shift_right(std::span<const std::int32_t> targets, std::int32_t start,
                 std::span<std::int32_t> inputs) {
  check(inputs.size() == targets.size() && !inputs.empty(), inputs.size(), " inputs for ",
        targets.size(), " targets");
  inputs.front() = start;
  std::copy(targets.begin(), targets.end() - 1, inputs.begin() + 1);
}

}  // namespace trireme::data
