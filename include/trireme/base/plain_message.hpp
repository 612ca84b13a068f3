#pragma once

#include <exception>
#include <string>

namespace trireme {

/// The message of any exception in words for a user: not the text of the C++ library, which names
/// its functions.
std::string plain_message(const std::exception& error);

}  // namespace trireme
