#pragma once

#include <trireme/base/types.hpp>

#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::io {

/// Held by every function here around its HDF5 calls: the library is not thread-safe as
/// distributions build it. May be taken again by the thread that holds it. The first one also
/// silences HDF5's own error printing; failures become Errors that name file, object and HDF5's
/// reason.
class Lock {
 public:
  Lock();

 private:
  std::lock_guard<std::recursive_mutex> guard_;
};

/// Owns one HDF5 identifier (an hid_t: a signed 64-bit number) and closes it.
class Handle {
 public:
  using Close = int (*)(std::int64_t);
  Handle() = default;
  Handle(std::int64_t id, Close close) : id_(id), close_(close) {}
  ~Handle() { reset(); }
  Handle(Handle&& other) noexcept;
  Handle& operator=(Handle&& other) noexcept;

  std::int64_t id() const { return id_; }
  bool valid() const { return id_ >= 0; }
  /// Closes now; false if HDF5 could not (then the data may be incomplete).
  bool reset();

 private:
  std::int64_t id_ = -1;
  Close close_ = nullptr;
};

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

/// An HDF5 file. HDF5 may crash on damaged bytes: verify a checksum before open().
class Hdf5File {
 public:
  /// Truncates. `user_block_bytes` (0 or a power of two from 512 on) at the file's start stay out
  /// of HDF5's hands.
  static Hdf5File create(const std::string& path, std::int64_t user_block_bytes = 0);
  static Hdf5File open(const std::string& path);  ///< For reading.

  /// A new contiguous dataset, its space allocated at once and not filled. Groups in `name`
  /// ("a/b/c") are made.
  Dataset create_dataset(const std::string& name, DType dtype,
                         const std::vector<std::int64_t>& shape);
  Dataset dataset(const std::string& name) const;
  bool has(const std::string& name) const;

  /// Attributes of the file's root group.
  void set_attribute(const std::string& name, std::string_view value);
  void set_attribute(const std::string& name, std::int64_t value);
  bool has_attribute(const std::string& name) const;
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
