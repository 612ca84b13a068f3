#pragma once

#include <string>
#include <string_view>

namespace trireme {

/// The mistake of a text that is not JSON, and its place: "column 26: \ud83d is half of a character
/// (a lone surrogate)", with the line if the text has several. Empty if the text is JSON and every
/// number fits. Columns count characters from 1.
std::string json_mistake(std::string_view content);

}  // namespace trireme
