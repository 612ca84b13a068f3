// Decodes images in other threads and writes them in order.
#include <trireme/data/image_queue.hpp>

#include <trireme/base/check.hpp>

#include <algorithm>
#include <filesystem>
#include <span>
#include <thread>
#include <utility>

namespace trireme::data {
namespace {

constexpr std::size_t most_threads = 8;
constexpr std::size_t most_documents = 64;

}  // namespace

ImageQueue::ImageQueue(std::int64_t size, io::ImageFit fit)
    : size_(size),
      fit_(fit),
      threads_(std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, most_threads)) {}

void ImageQueue::push(CountedTokens document, TokenFileWriter& file, const std::string& where,
                      const std::string& folder) {
  pending_.push_back({std::move(document), &file, where});
  for (std::size_t i = 0; i < pending_.back().document.images.size(); ++i) {
    while (decoding_ == threads_) finish_oldest_image();
    Pending& last = pending_.back();
    std::string path = (std::filesystem::path(folder) / last.document.images[i]).string();
    last.images.push_back(
        std::async(std::launch::async, [path = std::move(path), size = size_, fit = fit_] {
          return io::fitted(io::read_image(path), size, fit).pixels;
        }));
    ++decoding_;
  }
  write_complete_documents();
  while (pending_.size() > most_documents) finish_oldest_image();
}

void ImageQueue::finish() {
  while (!pending_.empty()) finish_oldest_image();
}

/// Documents before the oldest image are complete: write_complete_documents() has been called.
void ImageQueue::finish_oldest_image() {
  Pending& first = pending_.front();
  try {
    first.file->append_image(first.images.front().get());
  } catch (const UsageError& error) {
    throw PlacedError(text(first.where, ": ", error.what()));
  }
  first.images.pop_front();
  ++first.written;
  --decoding_;
  write_complete_documents();
}

void ImageQueue::write_complete_documents() {
  while (!pending_.empty() && pending_.front().written == pending_.front().document.images.size()) {
    append_tokens(*pending_.front().file, pending_.front().document);
    pending_.pop_front();
  }
}

void append_tokens(TokenFileWriter& file, const CountedTokens& document) {
  std::span<const std::int32_t> rest(document.ids);
  for (const auto& [count, counted] : document.runs) {
    file.append(rest.first(static_cast<std::size_t>(count)), counted);
    rest = rest.subspan(static_cast<std::size_t>(count));
  }
  file.end_document(document.text_bytes);
}

}  // namespace trireme::data
