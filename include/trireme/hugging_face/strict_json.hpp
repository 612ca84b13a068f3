#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace trireme::hugging_face {

/// Rules for JSON from untrusted files.
struct JsonRules {
  /// Largest number of nested lists and objects, the outermost object included.
  int depth = 0;
  std::string what;    ///< description of the content for messages: "the header"
  std::string remedy;  ///< end of messages: "; copy or download the file again"
};

/// Parses `content` as a JSON object. UsageError for any other content, and for duplicate keys,
/// deep nesting and numbers that would be rounded to 0. `path` is for messages.
nlohmann::json parse_strict(const std::string& content, const std::string& path,
                            const JsonRules& rules);

}  // namespace trireme::hugging_face
