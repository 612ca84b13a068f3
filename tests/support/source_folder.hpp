#pragma once

#include <cstdlib>
#include <string>

namespace trireme::testing {

/// The environment variable's value, or the build's folder if it is not set. In a bundle,
/// tools/bundle sets the variables.
inline std::string relocated(const char* variable, const char* built) {
  const char* moved = std::getenv(variable);
  return moved != nullptr ? moved : built;
}

/// The folder that contains tests/golden.
inline std::string source_folder() {
  return relocated("TRIREME_SOURCE_DIR", TRIREME_SOURCE_DIR);
}

inline std::string golden_file(const std::string& name) {
  return source_folder() + "/tests/golden/" + name;
}

}  // namespace trireme::testing
