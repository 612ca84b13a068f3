#include <trireme/io/memory_file.hpp>

#include <trireme/base/check.hpp>

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

namespace trireme::io {
namespace {

constexpr std::int64_t piece_bytes = 1 << 20;

}  // namespace

MemoryFile::MemoryFile() : descriptor_(::memfd_create("trireme", MFD_CLOEXEC)) {
  check(descriptor_ >= 0, "cannot create a file in memory: ", std::strerror(errno));
}

MemoryFile::~MemoryFile() {
  ::close(descriptor_);
}

std::int64_t MemoryFile::size() const {
  struct stat status {};
  ::fstat(descriptor_, &status);
  return status.st_size;
}

void MemoryFile::for_each_part(const Use& use) const {
  std::vector<char> piece(static_cast<std::size_t>(piece_bytes));
  std::int64_t begin = ::lseek(descriptor_, 0, SEEK_DATA);
  while (begin >= 0) {  // no further part: ENXIO
    const std::int64_t end = ::lseek(descriptor_, begin, SEEK_HOLE);
    for (std::int64_t at = begin; at < end; at += piece_bytes) {
      const auto bytes = static_cast<std::size_t>(std::min(piece_bytes, end - at));
      const auto got = ::pread(descriptor_, piece.data(), bytes, at);
      check(got == static_cast<ssize_t>(bytes),
            "cannot read back a file in memory: ", std::strerror(errno));
      use(at, piece.data(), bytes);
    }
    begin = ::lseek(descriptor_, end, SEEK_DATA);
  }
}

}  // namespace trireme::io
