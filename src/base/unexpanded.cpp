#include <trireme/base/unexpanded.hpp>

#include <trireme/base/text.hpp>

#include <cctype>
#include <cstdlib>

namespace trireme {
namespace {

bool begins_name(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_';
}

/// "$HOME" or "${HOME}" in a path; "" if there is none.
std::string_view variable_in(std::string_view path) {
  for (std::size_t at = path.find('$'); at != std::string_view::npos; at = path.find('$', at + 1)) {
    std::size_t end = at + 1;
    const bool braced = end < path.size() && path[end] == '{';
    if (braced) ++end;
    if (end == path.size() || !begins_name(path[end])) continue;
    while (end < path.size() &&
           (begins_name(path[end]) || std::isdigit(static_cast<unsigned char>(path[end])) != 0))
      ++end;
    if (braced && (end == path.size() || path[end++] != '}')) continue;
    return path.substr(at, end - at);
  }
  return {};
}

}  // namespace

std::string unexpanded(std::string_view path) {
  const char* home = std::getenv("HOME");
  if (path.starts_with('~')) {
    const std::string_view word = path.substr(0, path.find('/'));
    const bool mine = word == "~" && home != nullptr && *home != '\0';
    return text(word, " in \"", path, "\" is not expanded; write ",
                mine ? text(home, path.substr(1)) : "the full path");
  }
  const std::string_view variable = variable_in(path);
  return variable.empty()
             ? ""
             : text(variable, " in \"", path, "\" is not expanded; write the full path");
}

}  // namespace trireme
