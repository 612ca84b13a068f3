#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

/// Largest size of a tokenizer's file in bytes.
inline constexpr std::int64_t file_limit_bytes = 256 << 20;

/// A value of a parsed JSON file, and the value's path for messages. The parsed file must outlive
/// this object.
struct JsonNode {
  const nlohmann::json& json;
  std::string path;  ///< "tokenizer.json: model.type"

  /// Member `key`; a null node if the member is missing or this value is not an object.
  JsonNode operator[](const char* key) const;
  JsonNode operator[](std::size_t index) const;
  /// Throws a UsageError with the path, the value and the supported values.
  [[noreturn]] void refuse(const std::string& supported) const;
  /// Whether the value is null, missing or an empty string.
  bool is_nothing() const;
  void expect_nothing() const;
  bool flag(bool otherwise) const;
  void expect_false() const;
  const std::string& string() const;
  /// The only character of a string; UsageError for any other value.
  char32_t character() const;
  void expect_type(const char* type) const;
  std::int64_t id() const;
  /// An integer from 0 to `largest`; UsageError for any other value.
  std::int64_t count(std::int64_t largest) const;
  double number() const;
  /// Length of a list of at most `most` parts. UsageError for any other value. `supported`:
  /// expected value for the message.
  std::size_t list_size(std::size_t most, const std::string& supported) const;
};

/// A supported type of a tokenizer.json: its name, and the function that builds a part.
template <class Build>
struct JsonPart {
  const char* type;
  Build build;
};

/// The table's entry for the node's type. UsageError that lists all types if there is none.
template <class Table>
const auto& part_of_type(const JsonNode& node, const Table& table) {
  const JsonNode type = node["type"];
  std::string known;
  for (const auto& part : table) {
    if (type.json == part.type) return part;
    known += (known.empty() ? "\"" : ", \"") + std::string(part.type) + "\"";
  }
  (node.json.is_object() ? type : node).refuse("one of " + known);
}

}  // namespace trireme::data
