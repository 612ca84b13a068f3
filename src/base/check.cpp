#include <trireme/base/check.hpp>

#include <cstring>
#include <filesystem>
#include <new>
#include <string_view>
#include <system_error>

namespace trireme {

std::string plain_message(const std::exception& error) {
  if (dynamic_cast<const Error*>(&error) != nullptr) return error.what();
  if (const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&error)) {
    const std::string path = file->path1().string();
    return text(path.empty() ? "" : path + ": ", file->code().message());
  }
  if (const auto* system = dynamic_cast<const std::system_error*>(&error))
    return system->code().message();
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr)
    return "there is not enough memory; use more ranks or nodes, or a smaller model or batch";
  std::string_view what = error.what();
  if (what.starts_with("[json.exception") && what.find("] ") != std::string_view::npos)
    what.remove_prefix(what.find("] ") + 2);
  return text("internal error: ", what, "; please report it with the command and the deck");
}

namespace detail {

void check_failed(const std::string& message, Place place) {
  const char* file = std::strstr(place.file, "src/");
  const char* header = std::strstr(place.file, "include/trireme/");
  throw Error(text(message, "  [",
                   header ? header
                   : file ? file
                          : place.file,
                   ":", place.line, "]"));
}

}  // namespace detail
}  // namespace trireme
