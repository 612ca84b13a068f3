#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace trireme::commands {

/// A line of a file of JSON objects. Errors are UsageErrors with file and line.
struct JsonLine {
  const std::string& path;
  std::int64_t number = 0;
  nlohmann::json json;  ///< an object

  /// Throws UsageError with `what` and the remedy to remove the line.
  [[noreturn]] void fail(const std::string& what) const;

  /// The following functions fail if the value is of another type, and all but maybe() if the key
  /// is missing.
  const nlohmann::json& at(const char* key) const;
  double real(
      const char* key) const;  ///< NaN for null, which stands for a value that was not finite
  std::int64_t whole(const char* key) const;  ///< an integer of at least 0
  bool boolean(const char* key) const;
  std::string string(const char* key) const;
  std::optional<double> maybe(const char* key) const;  ///< real(key); empty if the key is missing
};

/// A JSON value as text for a message.
std::string shown(const nlohmann::json& value);

/// Calls `read` for each line of a file. Returns whether an incomplete last line was ignored, as
/// after a killed process. UsageError for any other line that is not a JSON object.
bool read_json_lines(const std::string& path, const std::function<void(const JsonLine&)>& read);

}  // namespace trireme::commands
