#pragma once

#include <string>
#include <string_view>

namespace trireme {

/// The text with control characters and bytes that are not UTF-8 escaped as "\x1B", so that a
/// terminal does not interpret them. Keeps tabs and, with `lines`, line feeds.
std::string printable(std::string_view text, bool lines = false);

}  // namespace trireme
