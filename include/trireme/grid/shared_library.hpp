#pragma once

#include <string>
#include <vector>

namespace trireme::grid {

/// What is asked of a library that is loaded when it is needed, and not linked.
struct LibraryWanted {
  std::string what;                ///< for errors: "NCCL 2.28.3"
  std::vector<std::string> names;  ///< tried in this order; without a slash, where the loader looks
  std::vector<const char*> symbols;  ///< all of them
  /// The version of one that is found, for errors; may return an empty one.
  std::string (*version)(void* handle) = nullptr;
  std::string remedy;
};

struct LoadedLibrary {
  void* handle = nullptr;
  std::string path;              ///< of the file
  std::vector<void*> addresses;  ///< of the symbols
};

/// The first of the names that can be loaded and has every symbol. It is never unloaded, as threads
/// of its own may run. Throws Error with what the loader said of each name, what each library
/// lacks, and the remedy.
LoadedLibrary load_library(const LibraryWanted& wanted);

}  // namespace trireme::grid
