#pragma once

#include <trireme/io/hdf5_handle.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trireme::io {

/// A global array in a file: contiguous, last axis fastest, little endian.
class Dataset {
 public:
  DType dtype() const { return dtype_; }
  const std::vector<std::int64_t>& shape() const { return shape_; }
  std::int64_t bytes() const;
  bool contiguous() const;
  /// Where its bytes begin, counted from the first byte of the file, user block included; -1 if it
  /// has none. They are bytes() many, so that plain pread and pwrite may stand in for HDF5.
  std::int64_t file_offset() const;

  /// Copies the block [offset, offset + extent) of every axis from or to contiguous memory of type
  /// dtype(), bit for bit. Lets go of the lock at least every 16 MiB.
  void write(std::span<const std::int64_t> offset, std::span<const std::int64_t> extent,
             const void* data);
  void read(std::span<const std::int64_t> offset, std::span<const std::int64_t> extent,
            void* data) const;

 private:
  friend class Hdf5File;
  void transfer(std::span<const std::int64_t> offset, std::span<const std::int64_t> extent,
                char* data, bool writing) const;
  Handle handle_;
  std::string name_;  // file and object, for messages
  DType dtype_ = DType::fp64;
  std::vector<std::int64_t> shape_;
};

}  // namespace trireme::io
