#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::io {

/// What write_direct asks of places and sizes: enough for all usual devices.
inline constexpr std::int64_t direct_alignment = 4096;

/// A file that appears whole or not at all: written beside its final place under a temporary name,
/// flushed to the device and renamed by commit(). Without commit() the destructor removes it and a
/// former file of that name stays. Every failure (a full disk, a quota, a size limit) is an Error
/// that names the final file.
class AtomicFile {
 public:
  /// UsageError if the folder is missing or not writable, or if `path` is there and not a regular
  /// file.
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  const std::string& path() const { return path_; }
  const std::string& temporary_path() const { return temporary_path_; }
  int descriptor() const { return descriptor_; }

  /// Fails now if `bytes` do not fit on the device, for writers that cannot bear to fail later
  /// (HDF5). The space is given back: the file is empty afterwards.
  void probe_space(std::int64_t bytes);
  /// The device begins at once with what is written in order, so that commit() has little to wait
  /// for.
  void write(std::int64_t offset, const void* data, std::size_t bytes);
  /// The same past the node's cache: the device takes the bytes out of this memory, which costs the
  /// processor next to nothing. False, and nothing is written, where the file system cannot do
  /// that, or unless offset, address and number are multiples of direct_alignment.
  bool write_direct(std::int64_t offset, const void* data, std::size_t bytes);
  void commit();

 private:
  std::string path_;
  std::string temporary_path_;
  int descriptor_ = -1;
  int direct_descriptor_ = -1;  ///< opened by the first direct write
  bool may_be_direct_ = true;
  std::int64_t flushed_ = 0;  ///< the device was told to write up to here
};

/// Writes a small file atomically.
void replace_file(const std::string& path, std::string_view content);

/// Bytes of unknown number that wait in an unnamed file in the folder of `path` until they are
/// copied into it: what cannot be held in memory. Nothing is left behind, however the process ends.
class Spool {
 public:
  explicit Spool(const std::string& path);
  ~Spool();
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;

  void append(const void* data, std::size_t bytes);
  std::int64_t bytes() const { return bytes_; }
  /// Copies everything to `offset` of `file`; by reference where the file system can.
  void copy_to(AtomicFile& file, std::int64_t offset);

 private:
  std::string path_;
  int descriptor_ = -1;
  std::int64_t bytes_ = 0;
};

/// Writes all of it at `offset`; errors name `path`.
void write_at(int descriptor, const std::string& path, std::int64_t offset, const void* data,
              std::size_t bytes);

void flush_to_device(int descriptor, const std::string& path);  ///< fsync
void flush_folder(const std::string& folder);                   ///< Makes renames in it durable.

/// From now on SIGINT, SIGTERM and SIGHUP remove the temporary files of all AtomicFiles before they
/// end the process as they would have. For commands that have no orderly stop of their own.
void remove_temporaries_on_signals();

}  // namespace trireme::io
