#include <trireme/base/input.hpp>

#include <trireme/base/check.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace trireme {
namespace {

/// Whether the path names a descriptor of this process, whose other end is in use already.
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
  expect_file(path, cited, streams);  // opening a device may already move it
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

}  // namespace trireme
