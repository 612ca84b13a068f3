#include <trireme/grid/shared_library.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/process.hpp>
#include <trireme/base/text.hpp>

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cstdlib>

namespace trireme::grid {
namespace {

std::string path_of(void* handle, const std::string& name) {
  link_map* map = nullptr;
  const bool known = dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && *map->l_name != '\0';
  return known ? map->l_name : name;
}

/// Tries to load one library with every symbol. Returns the problem; "" if there is none.
std::string try_to_load(const LibraryWanted& wanted, const std::string& name,
                        LoadedLibrary& library) {
  library = {};
  dlerror();
  library.handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library.handle == nullptr) {
    const char* said = dlerror();
    return text("dlopen(\"", name, "\"): ", said != nullptr ? said : "failed");
  }
  library.path = path_of(library.handle, name);
  std::vector<std::string> missing;
  for (const char* symbol : wanted.symbols) {
    library.addresses.push_back(dlsym(library.handle, symbol));
    if (library.addresses.back() == nullptr) missing.emplace_back(symbol);
  }
  if (missing.empty()) return "";
  const std::string version =
      wanted.version != nullptr ? wanted.version(library.handle) : std::string();
  return text(library.path, version.empty() ? "" : " is " + version + " and", " lacks ",
              join(missing, ", "), "; its version is too old");
}

}  // namespace

LoadedLibrary load_library(const LibraryWanted& wanted) {
  std::vector<std::string> wrongs;
  LoadedLibrary library;
  for (const std::string& name : wanted.names) {
    const std::string wrong = try_to_load(wanted, name, library);
    if (wrong.empty()) return library;
    wrongs.push_back("\n  " + wrong);
  }
  const char* path = std::getenv("LD_LIBRARY_PATH");
  throw Error(text("cannot load ", wanted.what, " on ", host_name(), ":", join(wrongs, ""),
                   "\n  LD_LIBRARY_PATH is ",
                   path != nullptr && *path != '\0' ? std::string(path) : "empty", "\n",
                   wanted.remedy));
}

}  // namespace trireme::grid
