#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace trireme::io {

/// Streams a text file, plain or gzip-compressed (told by its content, so dictzip's .dz too); "-"
/// is standard input.
class TextReader {
 public:
  /// UsageError if the file cannot be opened.
  explicit TextReader(const std::string& path);
  ~TextReader();
  TextReader(const TextReader&) = delete;
  TextReader& operator=(const TextReader&) = delete;

  /// Fills `out` as far as the text goes and returns the number of bytes; 0 at the end. Error if
  /// the compressed data is damaged or ends early; UsageError for data in a compression format
  /// other than gzip.
  std::size_t read(std::span<char> out);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::io
