#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace trireme::hugging_face {

/// How to read JSON from files that anybody may have written.
struct JsonRules {
  int depth = 0;       ///< of lists and objects within the outermost one, at most 63
  std::string what;    ///< "the header", for messages
  std::string remedy;  ///< "; copy or download the file again"
};

/// The object that `content` is. The parser alone would take the last of two equal keys and any
/// depth; here both are a UsageError, as is all that is no JSON object. `path` is for messages.
nlohmann::json parse_strict(const std::string& content, const std::string& path,
                            const JsonRules& rules);

}  // namespace trireme::hugging_face
