#pragma once

#include <string>
#include <string_view>

namespace trireme {

/// The text with control characters and bytes that are not UTF-8 as "\x1B", so that a terminal
/// shows them and does not obey them. Tabs and, with `lines`, line feeds stay.
std::string printable(std::string_view text, bool lines = false);

}  // namespace trireme
