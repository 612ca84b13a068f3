#pragma once

#include <trireme/io/atomic_file.hpp>
#include <trireme/io/hdf5_handle.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::io {

/// A dataset of an HDF5 file: an array, last axis fastest, little endian.
class Dataset {
 public:
  DType dtype() const { return dtype_; }
  const std::vector<std::int64_t>& shape() const { return shape_; }
  std::int64_t bytes() const;
  bool contiguous() const;
  /// Offset of the dataset's first byte from the start of the file, user block included; -1 if the
  /// dataset is not contiguous or not allocated. bytes() bytes from this offset are the data.
  std::int64_t file_offset() const;

  /// Writes or reads the block [offset, offset + extent) along every axis, from or to contiguous
  /// memory of type dtype(), bit for bit. Releases the lock at least every 16 MiB. Error if the
  /// block is not within the shape.
  void write(std::span<const std::int64_t> offset, std::span<const std::int64_t> extent,
             const void* data);
  void read(std::span<const std::int64_t> offset, std::span<const std::int64_t> extent,
            void* data) const;

 private:
  friend class Hdf5File;
  void transfer(std::span<const std::int64_t> offset, std::span<const std::int64_t> extent,
                char* data, bool writing) const;
  Handle handle_;
  std::string name_;  // file and object, for errors
  DType dtype_ = DType::fp64;
  std::vector<std::int64_t> shape_;
};

/// A part of a virtual dataset: the block [offset, offset + extent) maps a whole dataset of another
/// file. `file` is relative to the folder of the virtual dataset's file.
struct VirtualSource {
  std::string file;
  std::string dataset;
  std::vector<std::int64_t> offset;
  std::vector<std::int64_t> extent;
};

/// An unnamed file in memory. Parts that are not written take no memory.
class MemoryFile {
 public:
  MemoryFile();
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  int descriptor() const { return descriptor_; }
  std::int64_t size() const;
  /// Calls `use` for the parts that were written, in pieces of at most 1 MiB.
  using Use = std::function<void(std::int64_t offset, const void* data, std::size_t bytes)>;
  void for_each_part(const Use& use) const;

 private:
  int descriptor_ = -1;
};

/// An HDF5 file. HDF5 may crash on damaged bytes: verify a checksum before open().
///
/// HDF5 cannot discard a file after a failed write. Therefore it writes a new file to memory, and
/// close() copies the written parts to disk.
class Hdf5File {
 public:
  /// Creates or truncates a file, which stays empty until close() or close_into(). HDF5 does not
  /// use the first `user_block_bytes` bytes (0, or a power of two from 512 on). HDF5 groups its
  /// metadata in pieces of `structure_bytes` (0: its default of 2 KiB). Datasets of 1 MiB or more
  /// begin at multiples of `dataset_alignment` (0: anywhere).
  static Hdf5File create(const std::string& path, std::int64_t user_block_bytes = 0,
                         std::int64_t structure_bytes = 0, std::int64_t dataset_alignment = 0);
  static Hdf5File open(const std::string& path);  ///< For reading.

  /// Creates a contiguous dataset, allocated at once and not filled. Missing groups in `name`
  /// ("a/b/c") are created.
  Dataset create_dataset(const std::string& name, DType dtype,
                         const std::vector<std::int64_t>& shape);
  /// Creates a dataset without storage that maps datasets of other files, which need not exist yet.
  /// Elements without a part or a file read as NaN; integers as 0. No part may be empty.
  void create_virtual_dataset(const std::string& name, DType dtype,
                              const std::vector<std::int64_t>& shape,
                              std::span<const VirtualSource> parts);
  Dataset dataset(const std::string& name) const;
  bool has(const std::string& name) const;

  /// Attributes of the file's root group.
  void set_attribute(const std::string& name, std::string_view value);
  void set_attribute(const std::string& name, std::int64_t value);
  std::string string_attribute(const std::string& name) const;
  std::int64_t integer_attribute(const std::string& name) const;

  /// Closes the file, and writes a created file to disk. Without close(), a created file stays
  /// empty.
  void close();
  /// Like close(), but writes to `file`, whose temporary path must have been given to create().
  void close_into(AtomicFile& file);

 private:
  Hdf5File(const std::string& path, Handle handle);
  void finish();
  std::string path_;
  Handle handle_;
  std::unique_ptr<MemoryFile> memory_;  ///< bytes written by HDF5, if this object created the file
};

}  // namespace trireme::io
