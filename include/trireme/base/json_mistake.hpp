#pragma once

#include <string>
#include <string_view>

namespace trireme {

/// First error of a text that is not JSON, with its position: "column 26: \ud83d is half of a
/// character (a lone surrogate)", and the line if the text has several. Empty if the text is JSON
/// and every number is representable. Columns count characters from 1.
std::string json_mistake(std::string_view content);

}  // namespace trireme
