#pragma once

#include <string>
#include <vector>

namespace trireme::grid {

/// Requirements on a library that is loaded at run time.
struct LibraryWanted {
  std::string what;                  ///< for errors: "NCCL 2.28.3"
  std::vector<std::string> names;    ///< tried in this order; the loader searches names without "/"
  std::vector<const char*> symbols;  ///< all required
  /// Returns the version of a loaded library, for errors, or "". May be null.
  std::string (*version)(void* handle) = nullptr;
  std::string remedy;
};

struct LoadedLibrary {
  void* handle = nullptr;
  std::string path;              ///< path of the library file
  std::vector<void*> addresses;  ///< addresses of the symbols
};

/// Loads the first library that has every symbol. Libraries are never unloaded. If no library has
/// every symbol, throws Error with the problem of each name, and the remedy.
LoadedLibrary load_library(const LibraryWanted& wanted);

}  // namespace trireme::grid
