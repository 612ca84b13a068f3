#pragma once

#include <string>
#include <string_view>

namespace trireme {

/// Position and description of the first error of a text that is not JSON: "column 26: \ud83d is
/// half of a character (a lone surrogate)". Columns count characters from 1. If the text has
/// several lines, the line number precedes the column. "" if the text is JSON.
std::string json_mistake(std::string_view content);

}  // namespace trireme
