#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace trireme::data {

/// JSON as Python's json.dumps(value, ensure_ascii=False) writes it, which chat templates use.
/// `indent` > 0: one member per line, indented by this many spaces per level. UsageError for a
/// number beyond 64 bits, because its digits are lost in the parsed value.
std::string python_json(const nlohmann::ordered_json& value, int indent = 0);

}  // namespace trireme::data
