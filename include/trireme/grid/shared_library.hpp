#pragma once

#include <string>
#include <vector>

namespace trireme::grid {

/// Requirements on a library that is loaded at run time.
struct LibraryWanted {
  std::string what;                  ///< for errors: "NCCL 2.28.3"
  std::vector<std::string> names;    ///< tried in this order; searched for if without a slash
  std::vector<const char*> symbols;  ///< all required
  /// Returns the version of a library that was found, for errors; may be empty.
  std::string (*version)(void* handle) = nullptr;
  std::string remedy;
};

struct LoadedLibrary {
  void* handle = nullptr;
  std::string path;              ///< path of the library file
  std::vector<void*> addresses;  ///< addresses of the symbols
};

/// Loads the first library that has every symbol. It is never unloaded, because it may run threads
/// of its own. Throws Error with the loader's message for each name, the symbols that each library
/// lacks, and the remedy.
LoadedLibrary load_library(const LibraryWanted& wanted);

}  // namespace trireme::grid
