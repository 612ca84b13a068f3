// Checks that input paths are files, opens files, finds paths that a shell would have expanded, and
// lists folders.
#include <trireme/base/input.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

namespace trireme {
namespace {

/// Whether the path names a descriptor of this process, such as the pipe of `<(command)`.
bool is_descriptor(const std::string& path) {
  return path == "/dev/stdin" || path.starts_with("/dev/fd/") || path.starts_with("/proc/self/fd/");
}

const char* other_kind(mode_t mode, bool streams) {
  if (S_ISREG(mode)) return "";
  if (S_ISDIR(mode)) return "a folder";
  if (streams) return "";
  if (S_ISFIFO(mode)) return "a named pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

[[noreturn]] void refuse(const std::string& cited, const std::string& kind) {
  throw UsageError(text(cited, ": is ", kind, ", expected a file"));
}

}  // namespace

std::string not_a_file(const std::string& path, bool streams) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return "";
  return other_kind(status.st_mode, streams && is_descriptor(path));
}

void expect_file(const std::string& path, const std::string& cited, bool streams) {
  if (const std::string kind = not_a_file(path, streams); !kind.empty()) refuse(cited, kind);
}

int open_input(const std::string& path, const std::string& cited, bool streams) {
  expect_file(path, cited, streams);  // opening a device may already change its state
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  check_usage(descriptor >= 0, cited, ": cannot open: ", std::strerror(errno));
  struct stat status {};
  const int error = ::fstat(descriptor, &status) == 0 ? 0 : errno;
  const std::string kind =
      error != 0 ? "" : other_kind(status.st_mode, streams && is_descriptor(path));
  if (error != 0 || !kind.empty()) ::close(descriptor);
  check_usage(error == 0, cited, ": cannot open: ", std::strerror(error));
  if (!kind.empty()) refuse(cited, kind);
  ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) & ~O_NONBLOCK);
  return descriptor;
}

namespace {

bool begins_name(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_';
}

/// The first variable in a path, such as "$HOME" or "${HOME}"; "" if there is none.
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

namespace {

namespace fs = std::filesystem;

std::vector<fs::directory_entry> entries_until_error(const std::string& folder,
                                                     std::error_code& error) {
  std::vector<fs::directory_entry> entries;
  for (fs::directory_iterator at(folder, error); !error && at != fs::directory_iterator();
       at.increment(error))
    entries.push_back(*at);
  return entries;
}

}  // namespace

std::vector<fs::directory_entry> entries_of(const std::string& folder) {
  std::error_code error;
  auto entries = entries_until_error(folder, error);
  const bool absent =
      error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
  check(!error || absent, folder, ": cannot list its files: ", error.message());
  return entries;
}

std::vector<fs::directory_entry> readable_entries_of(const std::string& folder) {
  std::error_code ignored;
  return entries_until_error(folder, ignored);
}

}  // namespace trireme
