#pragma once

#include <trireme/io/hdf5_handle.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
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

/// A part of a virtual dataset: the block [offset, offset + extent) is the whole of a dataset of
/// another file, whose name is relative to the folder of the file with the virtual dataset.
struct VirtualPart {
  std::string file;
  std::string dataset;
  std::vector<std::int64_t> offset;
  std::vector<std::int64_t> extent;
};

/// An HDF5 file. HDF5 may crash on damaged bytes: verify a checksum before open().
class Hdf5File {
 public:
  /// Truncates. `user_block_bytes` (0 or a power of two from 512 on) at the file's start stay out
  /// of HDF5's hands. HDF5 gathers its structures in pieces of `structure_bytes` (0: its default of
  /// 2 KiB, between the data). Datasets of 1 MiB and more begin at multiples of
  /// `dataset_alignment` (0: anywhere).
  static Hdf5File create(const std::string& path, std::int64_t user_block_bytes = 0,
                         std::int64_t structure_bytes = 0, std::int64_t dataset_alignment = 0);
  static Hdf5File open(const std::string& path);  ///< For reading.

  /// A new contiguous dataset, its space allocated at once and not filled. Groups in `name`
  /// ("a/b/c") are made.
  Dataset create_dataset(const std::string& name, DType dtype,
                         const std::vector<std::int64_t>& shape);
  /// A new dataset without storage of its own that shows parts of datasets of other files, which
  /// need not be there yet. What no part covers, and parts whose file is missing, read as NaN, and
  /// as 0 in integers. The parts are not empty.
  void create_virtual_dataset(const std::string& name, DType dtype,
                              const std::vector<std::int64_t>& shape,
                              std::span<const VirtualPart> parts);
  Dataset dataset(const std::string& name) const;
  bool has(const std::string& name) const;

  /// Attributes of the file's root group.
  void set_attribute(const std::string& name, std::string_view value);
  void set_attribute(const std::string& name, std::int64_t value);
  std::string string_attribute(const std::string& name) const;
  std::int64_t integer_attribute(const std::string& name) const;

  /// Throws if something could not be written; the destructor closes without a word.
  void close();

 private:
  Hdf5File(const std::string& path, Handle handle);
  std::string path_;
  Handle handle_;
};

}  // namespace trireme::io
