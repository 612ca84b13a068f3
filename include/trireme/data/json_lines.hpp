#pragma once

#include <trireme/base/check.hpp>

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace trireme::data {

/// Number of bytes that are read from a file at a time.
inline constexpr std::size_t read_bytes = std::size_t{256} << 10;

/// The JSON object of one line of a file, and the line's place for messages. The JSON object must
/// outlive this object. `form`: example of a line.
class JsonLine {
 public:
  JsonLine(const nlohmann::ordered_json& json, std::string where, std::string form)
      : json_(json), where_(std::move(where)), form_(std::move(form)) {}

  const nlohmann::ordered_json& json() const { return json_; }
  const std::string& where() const { return where_; }  ///< "tasks.jsonl:3"
  bool has(const char* key) const { return json_.contains(key); }
  /// Value of member `key`. UsageError unless it is a string.
  const std::string& string(const char* key) const;
  /// Value of member `key`. UsageError unless it is a list of one or more strings.
  std::vector<std::string> strings(const char* key) const;
  /// Throws a UsageError that begins with the line's place and ends with an example of a line.
  [[noreturn]] void refuse(const std::string& complaint) const;
  /// Throws a UsageError: member `key` is missing or is not `expected`.
  [[noreturn]] void refuse(const char* key, const std::string& expected) const;

 private:
  const nlohmann::ordered_json& json_;
  std::string where_;
  std::string form_;
};

/// A UsageError whose message begins with its place.
class PlacedError : public UsageError {
 public:
  using UsageError::UsageError;
};

/// Calls `use`. Prepends `place` to the message of a UsageError, unless the message begins with
/// `place` or the error is a PlacedError.
void with_place(const std::string& place, const std::function<void()>& use);

/// Calls `use` with each line of a file, plain or gzip ("-": standard input), in bounded memory.
/// Skips blank lines. UsageError with the line's place for a line that exceeds 64 MiB, is not UTF-8
/// or is not an object; UsageErrors of `use` get the place too. `form`: example of a line.
/// `progress` receives the number of bytes of text read so far.
void read_json_lines(const std::string& path, const std::string& form,
                     const std::function<void(const JsonLine&)>& use,
                     const std::function<void(std::int64_t)>& progress = {});

}  // namespace trireme::data
