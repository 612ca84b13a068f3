#include <trireme/deck/span_lengths.hpp>

#include <trireme/base/check.hpp>
#include <trireme/deck/config.hpp>

#include <algorithm>
#include <cmath>

namespace trireme::deck {
namespace {

SpanLengths lengths_of(std::int64_t raw, double density, double mean_span) {
  const auto rounded = [](double value) {
    return static_cast<std::int64_t>(std::nearbyint(value));
  };
  const std::int64_t noise =
      std::clamp<std::int64_t>(rounded(static_cast<double>(raw) * density), 1, raw - 1);
  const std::int64_t spans =
      std::max<std::int64_t>(rounded(static_cast<double>(noise) / mean_span), 1);
  return {raw, noise, spans, raw - noise + spans + 1, noise + spans + 1};
}

}  // namespace

SpanLengths span_lengths(std::int64_t source, double density, double mean_span) {
  check_usage(source >= 3, "sources of ", source,
              " tokens are too short for corrupted spans; the shortest have 3");
  check_usage(density > 0 && density <= 0.9, "a noise density of ", density,
              ", expected more than 0 and at most 0.9");
  check_usage(mean_span >= 1, "spans of ", mean_span, " tokens on average, expected at least 1");
  // One raw token more makes the source longer by one token, or not at all.
  SpanLengths found = lengths_of(source - 1, density, mean_span);
  for (SpanLengths next = found; next.source <= source;
       next = lengths_of(next.raw + 1, density, mean_span))
    found = next;
  if (density == 0.5 && found.target > found.source)
    found = lengths_of(found.raw - 1, density, mean_span);
  check_usage(found.spans <= found.raw - found.noise, "a noise density of ", density,
              " in spans of ", mean_span, " tokens keeps ", found.raw - found.noise,
              " tokens of text between ", found.spans,
              " spans; choose a lower density or longer spans");
  return found;
}

SpanLengths ModelConfig::spans() const {
  return span_lengths(encoder.sequence, encoder.noise, encoder.span);
}

}  // namespace trireme::deck
