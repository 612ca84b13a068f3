#pragma once

#include <string>
#include <string_view>

namespace trireme {

/// Why a path is refused that a shell would have expanded: it begins with "~" or contains a
/// variable such as $HOME. A folder of that name is never meant. "" for any other path.
std::string unexpanded(std::string_view path);

}  // namespace trireme
