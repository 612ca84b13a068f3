#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace trireme::io {

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
