#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace trireme::hugging_face {

/// Rules for JSON from untrusted files.
struct JsonRules {
  int depth = 0;       ///< nesting limit of lists and objects within the outermost one, at most 63
  std::string what;    ///< "the header", for messages
  std::string remedy;  ///< "; copy or download the file again"
};

/// Parses `content` as a JSON object. UsageError for any other content, and for duplicate keys and
/// deep nesting, which the parser alone would accept. `path` is for messages.
nlohmann::json parse_strict(const std::string& content, const std::string& path,
                            const JsonRules& rules);

}  // namespace trireme::hugging_face
