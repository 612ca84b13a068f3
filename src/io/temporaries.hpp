#pragma once

#include <string>

namespace trireme::io {

/// The temporary files that a signal has to remove. A path that finds no slot is merely not removed
/// then.
void remember_temporary(const std::string& path);
void forget_temporary(const std::string& path);

}  // namespace trireme::io
