#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace trireme::commands {

/// A line of a file of JSON objects; its errors name file and line.
struct JsonLine {
  const std::string& path;
  std::int64_t number = 0;
  nlohmann::json json;  ///< an object

  /// UsageError: `what`, and to remove the line.
  [[noreturn]] void fail(const std::string& what) const;

  /// These fail if the key is missing or its value is of another type.
  const nlohmann::json& at(const char* key) const;
  double real(const char* key) const;         ///< null is a number that was not finite: NaN
  std::int64_t whole(const char* key) const;  ///< from 0 on
  bool boolean(const char* key) const;
  std::string string(const char* key) const;
  std::optional<double> maybe(const char* key) const;  ///< real(), if the key is there
};

/// A value for a message.
std::string shown(const nlohmann::json& value);

/// Reads a file line by line. True if the last line, without its end, is no JSON object: it is left
/// out, since a killed process leaves such a line. UsageError for any other line that is none.
bool read_json_lines(const std::string& path, const std::function<void(const JsonLine&)>& read);

}  // namespace trireme::commands
