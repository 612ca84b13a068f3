#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace trireme::io {

/// Streams a text file, plain or gzip-compressed (detected by content, so dictzip's .dz too). "-"
/// is standard input.
class TextReader {
 public:
  /// UsageError if the file cannot be opened.
  explicit TextReader(const std::string& path);
  ~TextReader();
  TextReader(const TextReader&) = delete;
  TextReader& operator=(const TextReader&) = delete;

  /// Fills `out` from the text and returns the number of bytes; 0 at the end. Error if the
  /// compressed data is damaged or truncated. UsageError for other compression formats than gzip.
  std::size_t read(std::span<char> out);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::io
