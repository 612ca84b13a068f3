#include <trireme/base/check.hpp>

#include <cstring>

namespace trireme::detail {

void check_failed(const std::string& message, Place place) {
  const char* file = std::strstr(place.file, "src/");
  const char* header = std::strstr(place.file, "include/trireme/");
  throw Error(text(message, "  [",
                   header ? header
                   : file ? file
                          : place.file,
                   ":", place.line, "]"));
}

}  // namespace trireme::detail
