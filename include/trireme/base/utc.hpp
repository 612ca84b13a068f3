#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace trireme {

/// Wall-clock time in whole milliseconds, UTC, as files record it. Durations are measured with
/// Clock.
using Utc = std::chrono::sys_time<std::chrono::milliseconds>;

Utc utc_now();
/// ISO 8601 with a fixed length: "2026-11-22T20:20:23.045Z".
std::string to_text(Utc time);
/// Inverse of to_text; std::nullopt for any other form or a date that does not exist.
std::optional<Utc> parse_utc(std::string_view text);

}  // namespace trireme
