#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::io {

/// Alignment of offset, address and size for write_direct, in bytes.
inline constexpr std::int64_t direct_alignment = 4096;

/// A file that appears completely or not at all. commit() flushes the temporary file to the device
/// and renames it; without commit(), the destructor removes the temporary file. Errors name the
/// final file.
class AtomicFile {
 public:
  /// UsageError if no file can be created in the folder, or if `path` exists and is not a regular
  /// file.
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  const std::string& path() const { return path_; }
  const std::string& temporary_path() const { return temporary_path_; }
  int descriptor() const { return descriptor_; }

  /// Error if `bytes` do not fit on the device. The file is empty afterwards.
  void probe_space(std::int64_t bytes);
  /// Writes bytes at an offset, and starts their write-back to the device in large pieces.
  void write(std::int64_t offset, const void* data, std::size_t bytes);
  /// Like write(), but bypasses the page cache. Returns false if the file system does not support
  /// this, a write has failed, or offset, address and size are not multiples of direct_alignment;
  /// the caller then calls write() for all bytes.
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

/// Temporary storage for data that may not fit into memory: an unnamed file in the folder of
/// `path`, which the system removes when the process ends.
class Spool {
 public:
  explicit Spool(const std::string& path);
  ~Spool();
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;

  void append(const void* data, std::size_t bytes);
  std::int64_t bytes() const { return bytes_; }
  /// Copies all data to `offset` of `file`.
  void copy_to(AtomicFile& file, std::int64_t offset);

 private:
  std::string path_;
  int descriptor_ = -1;
  std::int64_t bytes_ = 0;
};

/// Writes all bytes at `offset`. Errors name `path`. `file_bytes`: size of the whole file, for the
/// message about a full disk; 0 if unknown.
void write_at(int descriptor, const std::string& path, std::int64_t offset, const void* data,
              std::size_t bytes, std::int64_t file_bytes = 0);

void flush_to_device(int descriptor, const std::string& path);  ///< fsync
void flush_folder(const std::string& folder);                   ///< fsync; makes renames durable

/// After this call, SIGINT, SIGTERM and SIGHUP remove all registered temporary files and empty
/// folders, and then end the process. Ignored signals stay ignored.
void remove_temporaries_on_signals();

/// A name for a temporary file or folder beside `path`: "PATH.partial-SYSTEM-PROCESS-N". It
/// identifies the machine and the process that use it.
std::string temporary_name(const std::string& path);

/// Removes the temporary files and folders of dead processes from a folder. A process of another
/// machine or boot counts as dead if its temporary file has not changed for a day.
void remove_dead_temporaries(const std::string& folder);

/// Calls remove_dead_temporaries once per process and folder, but never for folders "*.partial".
void remove_dead_temporaries_once(const std::string& folder);

/// Registers a temporary file or folder for remove_temporaries_on_signals().
void remember_temporary(const std::string& path);
void forget_temporary(const std::string& path);

/// Writes the output of a command, atomically unless `path` is a device or a pipe. A failure is a
/// UsageError with the path, the reason and `remedy`.
void write_output(const std::string& path, std::string_view content, const std::string& remedy);

/// Writes a command's --json output to a file, or to standard output for "-".
void write_json(const std::string& path, const std::string& json);

/// UsageError with path and reason unless an output file can be created at `path`. Accepts an empty
/// path, a device and a pipe without a check. Leaves no file.
void expect_writable(const std::string& path);

}  // namespace trireme::io
