// A library to preload: the n-th call of a function fails for files whose path contains a word.
//   FAULT_PATH=WORD    a part of the absolute path; without it the library does nothing
//   FAULT_CALL=NAME    open, openat, fopen, read, pread, write, pwrite, fsync, ...: see the
//   definitions below FAULT_AT=N         the first call that fails, from 1 in each process (default
//   1) FAULT_TIMES=N      so many calls fail (default 1); 0: all from the first on FAULT_ERRNO=N
//   error number; `short`: a read or write moves half of its bytes FAULT_RANK=N       this rank of
//   the launcher alone FAULT_PROGRAM=NAME this program alone FAULT_LOG=FILE     appends "program
//   rank call n path" for each call on such a file, and "*" if it failed
// Functions of 64-bit offsets count as those without. A close() that fails has closed the file, as
// in Linux.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { no_fault = 0, short_count = -1, known_calls = 64 };

static const char* word(const char* name) {
  const char* value = getenv(name);
  return value == NULL ? "" : value;
}

static const char* rank(void) {
  const char* names[] = {"PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK"};
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i)
    if (getenv(names[i]) != NULL) return getenv(names[i]);
  return "0";
}

/// Number of this call among those of its name, from 1.
static long count(const char* call) {
  static _Atomic(const char*) names[known_calls];
  static atomic_long counts[known_calls];
  for (int i = 0; i < known_calls; ++i) {
    const char* empty = NULL;
    atomic_compare_exchange_strong(&names[i], &empty, call);
    if (strcmp(atomic_load(&names[i]), call) == 0) return ++counts[i];
  }
  return 0;
}

static void record(const char* call, long n, const char* path, int fails) {
  char line[PATH_MAX + 128];
  if (*word("FAULT_LOG") == '\0') return;
  const int bytes =
      snprintf(line, sizeof line, "%s %s %s %ld %s%s\n", program_invocation_short_name, rank(),
               call, n, path, fails ? " *" : "");
  const long file = syscall(SYS_openat, AT_FDCWD, word("FAULT_LOG"),
                            O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) return;
  syscall(SYS_write, file, line, (size_t)bytes);
  syscall(SYS_close, file);
}

/// no_fault, short_count or the error number of this call.
static int fault(const char* call, const char* path) {
  const int former = errno;
  if (*word("FAULT_PATH") == '\0' || strstr(path, word("FAULT_PATH")) == NULL) return no_fault;
  if (*word("FAULT_PROGRAM") != '\0' &&
      strcmp(word("FAULT_PROGRAM"), program_invocation_short_name) != 0)
    return no_fault;
  const long n = count(call);
  const long first = *word("FAULT_AT") == '\0' ? 1 : atol(word("FAULT_AT"));
  const long times = *word("FAULT_TIMES") == '\0' ? 1 : atol(word("FAULT_TIMES"));
  const int fails = strcmp(word("FAULT_CALL"), call) == 0 && n >= first &&
                    (times == 0 || n < first + times) &&
                    (*word("FAULT_RANK") == '\0' || strcmp(word("FAULT_RANK"), rank()) == 0);
  record(call, n, path, fails);
  errno = former;
  if (!fails) return no_fault;
  return strcmp(word("FAULT_ERRNO"), "short") == 0 ? short_count : atoi(word("FAULT_ERRNO"));
}

static void path_of_file(int file, char* path) {
  char link[64];
  const int former = errno;
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t bytes = readlink(link, path, PATH_MAX - 1);
  path[bytes < 0 ? 0 : bytes] = '\0';
  errno = former;
}

static int fault_of_file(const char* call, int file) {
  char path[PATH_MAX];
  if (*word("FAULT_PATH") == '\0') return no_fault;
  path_of_file(file, path);
  return fault(call, path);
}

static int fault_of_path(const char* call, int folder, const char* path) {
  char whole[2 * PATH_MAX];
  if (*word("FAULT_PATH") == '\0' || path == NULL) return no_fault;
  if (*path == '/') return fault(call, path);
  if (folder == AT_FDCWD) {
    if (getcwd(whole, PATH_MAX) == NULL) return no_fault;
  } else {
    path_of_file(folder, whole);
  }
  const size_t length = strlen(whole);
  snprintf(whole + length, sizeof whole - length, "/%s", path);
  return fault(call, whole);
}

static void* original(const char* name) {
  return dlsym(RTLD_NEXT, name);
}

// SYMBOL(parameters), known as NAME: fails with FAILED if FAULT says so, else it is the next
// library's.
#define FAILING(result, failed, name, symbol, fault_expression, parameters, arguments) \
  result symbol parameters {                                                           \
    const int error = fault_expression(name);                                          \
    if (error > 0) {                                                                   \
      errno = error;                                                                   \
      return failed;                                                                   \
    }                                                                                  \
    result(*const next) parameters = original(#symbol);                                \
    return next arguments;                                                             \
  }
#define BY_PATH(name) fault_of_path(name, AT_FDCWD, path)
#define BY_FOLDER(name) fault_of_path(name, folder, path)
#define BY_FILE(name) fault_of_file(name, file)
#define BY_STREAM(name) fault_of_file(name, fileno(stream))
#define BY_DIRECTORY(name) fault_of_file(name, dirfd(directory))

#define OPENING(name, symbol)                                                              \
  int symbol(const char* path, int flags, ...) {                                           \
    va_list list;                                                                          \
    va_start(list, flags);                                                                 \
    const mode_t mode = (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(list, mode_t) : 0; \
    va_end(list);                                                                          \
    const int error = BY_PATH(name);                                                       \
    if (error > 0) {                                                                       \
      errno = error;                                                                       \
      return -1;                                                                           \
    }                                                                                      \
    int (*const next)(const char*, int, ...) = original(#symbol);                          \
    return next(path, flags, mode);                                                        \
  }
OPENING("open", open)
OPENING("open", open64)

#define OPENING_AT(name, symbol)                                                           \
  int symbol(int folder, const char* path, int flags, ...) {                               \
    va_list list;                                                                          \
    va_start(list, flags);                                                                 \
    const mode_t mode = (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(list, mode_t) : 0; \
    va_end(list);                                                                          \
    const int error = BY_FOLDER(name);                                                     \
    if (error > 0) {                                                                       \
      errno = error;                                                                       \
      return -1;                                                                           \
    }                                                                                      \
    int (*const next)(int, const char*, int, ...) = original(#symbol);                     \
    return next(folder, path, flags, mode);                                                \
  }
OPENING_AT("openat", openat)
OPENING_AT("openat", openat64)

#define MOVING(name, symbol, pointer, more, ...)                          \
  ssize_t symbol(int file, pointer data, size_t bytes more) {             \
    const int error = BY_FILE(name);                                      \
    if (error > 0) {                                                      \
      errno = error;                                                      \
      return -1;                                                          \
    }                                                                     \
    if (error == short_count && bytes > 1) bytes /= 2;                    \
    ssize_t (*const next)(int, pointer, size_t more) = original(#symbol); \
    return next(file, data, bytes __VA_ARGS__);                           \
  }
#define COMMA ,
MOVING("read", read, void*, )
MOVING("write", write, const void*, )
MOVING("pread", pread, void*, COMMA off_t offset, , offset)
MOVING("pread", pread64, void*, COMMA off64_t offset, , offset)
MOVING("pwrite", pwrite, const void*, COMMA off_t offset, , offset)
MOVING("pwrite", pwrite64, const void*, COMMA off64_t offset, , offset)

FAILING(FILE*, NULL, "fopen", fopen, BY_PATH, (const char* path, const char* mode), (path, mode))
FAILING(FILE*, NULL, "fopen", fopen64, BY_PATH, (const char* path, const char* mode), (path, mode))
FAILING(int, -1, "fsync", fsync, BY_FILE, (int file), (file))
FAILING(int, -1, "fdatasync", fdatasync, BY_FILE, (int file), (file))
FAILING(int, -1, "ftruncate", ftruncate, BY_FILE, (int file, off_t length), (file, length))
FAILING(int, -1, "ftruncate", ftruncate64, BY_FILE, (int file, off64_t length), (file, length))
FAILING(int, -1, "truncate", truncate, BY_PATH, (const char* path, off_t length), (path, length))
FAILING(int, -1, "truncate", truncate64, BY_PATH, (const char* path, off64_t length),
        (path, length))
FAILING(int, -1, "fallocate", fallocate, BY_FILE, (int file, int mode, off_t at, off_t bytes),
        (file, mode, at, bytes))
FAILING(int, -1, "fallocate", fallocate64, BY_FILE, (int file, int mode, off64_t at, off64_t bytes),
        (file, mode, at, bytes))
FAILING(ssize_t, -1, "copy_file_range", copy_file_range, BY_FILE,
        (int file, off64_t* from, int other, off64_t* to, size_t bytes, unsigned flags),
        (file, from, other, to, bytes, flags))
FAILING(int, -1, "rename", rename, BY_PATH, (const char* path, const char* to), (path, to))
FAILING(int, -1, "renameat2", renameat2, BY_FOLDER,
        (int folder, const char* path, int other, const char* to, unsigned flags),
        (folder, path, other, to, flags))
FAILING(int, -1, "link", link, BY_PATH, (const char* path, const char* to), (path, to))
FAILING(int, -1, "unlink", unlink, BY_PATH, (const char* path), (path))
FAILING(int, -1, "unlinkat", unlinkat, BY_FOLDER, (int folder, const char* path, int flags),
        (folder, path, flags))
FAILING(int, -1, "remove", remove, BY_PATH, (const char* path), (path))
FAILING(int, -1, "rmdir", rmdir, BY_PATH, (const char* path), (path))
FAILING(int, -1, "mkdir", mkdir, BY_PATH, (const char* path, mode_t mode), (path, mode))
FAILING(DIR*, NULL, "opendir", opendir, BY_PATH, (const char* path), (path))
FAILING(struct dirent*, NULL, "readdir", readdir, BY_DIRECTORY, (DIR * directory), (directory))
FAILING(struct dirent64*, NULL, "readdir", readdir64, BY_DIRECTORY, (DIR * directory), (directory))
FAILING(int, -1, "stat", stat, BY_PATH, (const char* path, struct stat* out), (path, out))
FAILING(int, -1, "stat", stat64, BY_PATH, (const char* path, struct stat64* out), (path, out))
FAILING(int, -1, "lstat", lstat, BY_PATH, (const char* path, struct stat* out), (path, out))
FAILING(int, -1, "fstat", fstat, BY_FILE, (int file, struct stat* out), (file, out))
FAILING(int, -1, "fstatvfs", fstatvfs, BY_FILE, (int file, struct statvfs* out), (file, out))
FAILING(int, -1, "access", access, BY_PATH, (const char* path, int mode), (path, mode))
FAILING(off_t, -1, "lseek", lseek, BY_FILE, (int file, off_t offset, int whence),
        (file, offset, whence))
FAILING(void*, MAP_FAILED, "mmap", mmap, BY_FILE,
        (void* at, size_t bytes, int protection, int flags, int file, off_t offset),
        (at, bytes, protection, flags, file, offset))

int close(int file) {
  const int error = BY_FILE("close");
  int (*const next)(int) = original("close");
  const int result = next(file);
  if (error <= 0) return result;
  errno = error;
  return -1;
}

int fclose(FILE* stream) {
  const int error = BY_STREAM("close");
  int (*const next)(FILE*) = original("fclose");
  const int result = next(stream);
  if (error <= 0) return result;
  errno = error;
  return EOF;
}

/// Does not return in a rank whose FAULT_CALL it is, whatever FAULT_PATH says.
int MPI_Finalize(void) {
  const int of_this_rank = *word("FAULT_RANK") == '\0' || strcmp(word("FAULT_RANK"), rank()) == 0;
  while (of_this_rank && strcmp(word("FAULT_CALL"), "MPI_Finalize") == 0) pause();
  int (*const next)(void) = original("MPI_Finalize");
  return next();
}
