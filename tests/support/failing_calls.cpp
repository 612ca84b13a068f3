// A library to preload: a call of open() or pread() fails for files whose path contains a word.
// FAIL_CALL=open|pread FAIL_PATH=WORD FAIL_AFTER=N FAIL_ERRNO=E: the calls after the first N fail.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

const char* word(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool fails(const char* call, const char* path) {
  static std::atomic<long> calls{0};
  if (std::strcmp(word("FAIL_CALL"), call) != 0 || *word("FAIL_PATH") == '\0' ||
      std::strstr(path, word("FAIL_PATH")) == nullptr)
    return false;
  if (calls++ < std::atol(word("FAIL_AFTER"))) return false;
  errno = std::atoi(word("FAIL_ERRNO"));
  return true;
}

template <class Function>
Function* original(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

int open_or_fail(const char* name, const char* path, int flags, mode_t mode) {
  using Open = int(const char*, int, ...);
  static Open* const open_file = original<Open>(name);
  return fails("open", path) ? -1 : open_file(path, flags, mode);
}

ssize_t pread_or_fail(int file, void* out, size_t bytes, off_t offset) {
  using Read = ssize_t(int, void*, size_t, off_t);
  static Read* const read_file = original<Read>("pread64");
  char path[4096] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  if (*word("FAIL_CALL") == 'p' && readlink(link.c_str(), path, sizeof path - 1) > 0 &&
      fails("pread", path))
    return -1;
  return read_file(file, out, bytes, offset);
}

mode_t mode_of(int flags, va_list& list) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? static_cast<mode_t>(va_arg(list, int)) : 0;
}

}  // namespace

extern "C" int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = mode_of(flags, list);
  va_end(list);
  return open_or_fail("open", path, flags, mode);
}
extern "C" int open64(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = mode_of(flags, list);
  va_end(list);
  return open_or_fail("open64", path, flags, mode);
}
extern "C" ssize_t pread(int file, void* out, size_t bytes, off_t offset) {
  return pread_or_fail(file, out, bytes, offset);
}
extern "C" ssize_t pread64(int file, void* out, size_t bytes, off_t offset) {
  return pread_or_fail(file, out, bytes, offset);
}
