#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::io {

/// Alignment of offsets and sizes for write_direct; enough for all common devices.
inline constexpr std::int64_t direct_alignment = 4096;

/// A file that appears completely or not at all. It is written under a temporary name in the same
/// folder; commit() flushes it to the device and renames it. Without commit() the destructor
/// removes it, and an existing file of that name stays. Every failure (a full disk, a quota, a size
/// limit) is an Error that names the final file.
class AtomicFile {
 public:
  /// UsageError if the folder is missing or not writable, or if `path` exists and is not a regular
  /// file.
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  const std::string& path() const { return path_; }
  const std::string& temporary_path() const { return temporary_path_; }
  int descriptor() const { return descriptor_; }

  /// Throws Error if `bytes` do not fit on the device, for writers that cannot recover from a later
  /// failure (HDF5). The space is released: the file is empty afterwards.
  void probe_space(std::int64_t bytes);
  /// Sequential writes go to the device at once, so that commit() has little to wait for.
  void write(std::int64_t offset, const void* data, std::size_t bytes);
  /// Writes like write() but bypasses the page cache: the device reads this memory directly, which
  /// takes almost no processor time. Returns false and writes nothing if the file system does not
  /// support it, or unless offset, address and size are multiples of direct_alignment.
  bool write_direct(std::int64_t offset, const void* data, std::size_t bytes);
  void commit();

 private:
  std::string path_;
  std::string temporary_path_;
  int descriptor_ = -1;
  int direct_descriptor_ = -1;  ///< opened by the first direct write
  bool may_be_direct_ = true;
  std::int64_t flushed_ = 0;        ///< write-back has been started up to this offset
  std::int64_t planned_bytes_ = 0;  ///< size given to probe_space
};

/// Writes a small file atomically.
void replace_file(const std::string& path, std::string_view content);

/// Temporary storage of data of unknown length, too large for memory: an unnamed file in the folder
/// of `path`. Nothing remains on disk, however the process ends.
class Spool {
 public:
  explicit Spool(const std::string& path);
  ~Spool();
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;

  void append(const void* data, std::size_t bytes);
  std::int64_t bytes() const { return bytes_; }
  /// Copies everything to `offset` of `file`, by reference if the file system supports it.
  void copy_to(AtomicFile& file, std::int64_t offset);

 private:
  std::string path_;
  int descriptor_ = -1;
  std::int64_t bytes_ = 0;
};

/// Writes all bytes at `offset`. Errors name `path`; the error of a full disk says how many bytes
/// the file needs (`file_bytes`, if that is larger than the bytes written) and how many are free.
void write_at(int descriptor, const std::string& path, std::int64_t offset, const void* data,
              std::size_t bytes, std::int64_t file_bytes = 0);

void flush_to_device(int descriptor, const std::string& path);  ///< fsync
void flush_folder(const std::string& folder);                   ///< Makes renames in it durable.

/// After this call, SIGINT, SIGTERM and SIGHUP remove the temporary files of all AtomicFiles before
/// they end the process as usual. For commands without an orderly stop of their own.
void remove_temporaries_on_signals();

/// A name for a temporary file or folder beside `path`: "PATH.partial-SYSTEM-PROCESS-N". It is
/// unique among all processes on all machines and identifies its owner.
std::string temporary_name(const std::string& path);

/// Removes temporary files and folders of dead processes from a folder. Temporaries of other
/// machines count as dead after a day without a change.
void remove_dead_temporaries(const std::string& folder);

/// Calls remove_dead_temporaries once per process and folder. Keeps partial checkpoints: the next
/// checkpoint removes them as a whole.
void remove_dead_temporaries_once(const std::string& folder);

/// Registers a temporary file or empty folder for removal on a signal
/// (remove_temporaries_on_signals). If too many are registered, this one stays after a signal.
void remember_temporary(const std::string& path);
void forget_temporary(const std::string& path);

/// Writes the output of a command. A file appears complete or not at all, and an existing file
/// stays until then; a device or a pipe, such as /dev/stdout, is written directly. UsageError with
/// the path, the reason and `remedy`.
void write_output(const std::string& path, std::string_view content, const std::string& remedy);

/// Writes a command's --json output to a file, or to standard output for "-".
void write_json(const std::string& path, const std::string& json);

/// Checks before a long computation that its output file can be written. UsageError with the path
/// and the reason. Accepts an empty path; leaves no file.
void expect_writable(const std::string& path);

}  // namespace trireme::io
