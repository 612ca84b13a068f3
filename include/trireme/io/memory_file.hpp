#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace trireme::io {

/// An unnamed file in memory. Parts that are never written take no memory.
class MemoryFile {
 public:
  MemoryFile();
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  int descriptor() const { return descriptor_; }
  std::int64_t size() const;
  /// Calls `use` for the parts with content, in pieces of at most 1 MiB.
  using Use = std::function<void(std::int64_t offset, const void* data, std::size_t bytes)>;
  void for_each_part(const Use& use) const;

 private:
  int descriptor_ = -1;
};

}  // namespace trireme::io
