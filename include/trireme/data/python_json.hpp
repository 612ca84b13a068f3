#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace trireme::data {

/// JSON as Python's json.dumps(value, ensure_ascii=False) writes it, which chat templates use.
/// `indent` > 0: one member per line, indented by this many blanks per level. UsageError for a
/// number beyond 64 bits, whose digits the parsed value does not have.
std::string python_json(const nlohmann::ordered_json& value, int indent = 0);

}  // namespace trireme::data
