#pragma once

#include <trireme/base/types.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace trireme {

/// Clock for measured durations. Its time points are valid within one process.
using Clock = std::chrono::steady_clock;

inline Seconds seconds(Clock::duration duration) {
  return std::chrono::duration<Seconds>(duration).count();
}
inline Seconds seconds_since(Clock::time_point begin) {
  return seconds(Clock::now() - begin);
}

/// Wall-clock time in whole milliseconds, UTC, as files record it.
using Utc = std::chrono::sys_time<std::chrono::milliseconds>;

Utc utc_now();
/// ISO 8601 with a fixed length: "2026-11-22T20:20:23.045Z".
std::string to_text(Utc time);
/// Inverse of to_text; std::nullopt for any other form, or a date or time that does not exist.
std::optional<Utc> parse_utc(std::string_view text);

}  // namespace trireme
