#pragma once

#include <trireme/base/text.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <string>

namespace trireme::fuzz {

/// A file in memory, so that a million inputs are not written to a disk.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(memfd_create("fuzz", 0)) {
    if (descriptor_ < 0) std::abort();
    path_ = text("/proc/self/fd/", descriptor_);
  }
  ~MemoryFile() { close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  void replace(const void* data, std::size_t bytes) const {
    if (ftruncate(descriptor_, 0) != 0 ||
        pwrite(descriptor_, data, bytes, 0) != static_cast<ssize_t>(bytes))
      std::abort();
  }
  const std::string& path() const { return path_; }

 private:
  int descriptor_;
  std::string path_;
};

}  // namespace trireme::fuzz
