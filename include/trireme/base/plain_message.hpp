#pragma once

#include <exception>
#include <string>

namespace trireme {

/// A message for users from any exception. Replaces the text of exceptions of the C++ library,
/// which names the library's functions.
std::string plain_message(const std::exception& error);

}  // namespace trireme
