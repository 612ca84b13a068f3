#pragma once

#include <string>
#include <string_view>

namespace trireme {

/// First error of a text that is not JSON, with its position: "column 26: \ud83d is half of a
/// character (a lone surrogate)". If the text has several lines, the line number precedes the
/// column. Columns count characters from 1. Empty if the text is JSON and all its numbers are
/// representable.
std::string json_mistake(std::string_view content);

}  // namespace trireme
