#pragma once

#include <trireme/base/checksum.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace trireme::io {

/// A regular file opened for reading at any offset. Reads are thread-safe.
class InputFile {
 public:
  /// UsageError if the file is missing, unreadable or not a regular file.
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;

  const std::string& path() const { return path_; }
  std::int64_t size() const { return size_; }  ///< bytes when the file was opened
  int descriptor() const { return descriptor_; }

  /// Reads exactly `bytes` bytes from `offset`. Error if the file is shorter or the device fails.
  void read(std::int64_t offset, void* out, std::size_t bytes) const;

  /// Reads bytes [begin, end) in order, and calls `use` for pieces of at most 1 MiB.
  void for_each_block(std::int64_t begin, std::int64_t end,
                      const std::function<void(const std::byte*, std::size_t)>& use) const;

 private:
  std::string path_;
  std::int64_t size_ = 0;
  int descriptor_ = -1;
};

/// The content of a file. Error if it is larger than the limit; other errors as for InputFile.
std::string read_text_file(const std::string& path, std::int64_t limit_bytes = 64 << 20);

/// Digest of a whole file, read in pieces.
Digest file_checksum(const std::string& path);

/// Streams a text file, plain or gzip, detected from the first bytes. The path "-" is standard
/// input.
class TextReader {
 public:
  /// UsageError if the file cannot be opened.
  explicit TextReader(const std::string& path);
  ~TextReader();
  TextReader(const TextReader&) = delete;
  TextReader& operator=(const TextReader&) = delete;

  /// Reads the next bytes of the text into `out` and returns their number; 0 at the end. Error for
  /// damaged compressed data. UsageError for other known formats, such as zstd, PDF and UTF-16.
  std::size_t read(std::span<char> out);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::io
