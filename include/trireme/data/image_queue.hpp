#pragma once

#include <trireme/data/instructions.hpp>
#include <trireme/data/token_file_writer.hpp>
#include <trireme/io/image_resize.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <future>
#include <string>
#include <vector>

namespace trireme::data {

/// Writes documents to token files in order while other threads decode their images. At most one
/// image per thread is decoded or waits to be written, and at most 64 documents wait.
class ImageQueue {
 public:
  ImageQueue(std::int64_t size, io::ImageFit fit);

  /// Appends a document, whose images are files relative to `folder`, to `file`. PlacedError that
  /// begins with `where` for an image of this or an earlier document that cannot be read.
  void push(CountedTokens document, TokenFileWriter& file, const std::string& where,
            const std::string& folder);
  /// Writes all documents. PlacedError as for push().
  void finish();

 private:
  struct Pending {
    CountedTokens document;
    TokenFileWriter* file;
    std::string where;
    std::size_t written = 0;  ///< images
    std::deque<std::future<std::vector<std::uint8_t>>> images = {};
  };
  void finish_oldest_image();
  void write_complete_documents();

  std::int64_t size_;
  io::ImageFit fit_;
  std::size_t threads_;
  std::size_t decoding_ = 0;  ///< images of pending_ that are decoded or wait to be written
  std::deque<Pending> pending_;
};

/// Appends a document without its images.
void append_tokens(TokenFileWriter& file, const CountedTokens& document);

}  // namespace trireme::data
