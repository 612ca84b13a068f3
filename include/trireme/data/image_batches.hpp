#pragma once

#include <trireme/architecture/objective.hpp>
#include <trireme/data/batch_reader.hpp>

#include <optional>

namespace trireme::data {

/// Makes batches of documents with images (image_documents.hpp).
///
/// Fields of B samples of S tokens:
///   tokens [B, S], targets [B, S]   the document, and the next tokens or `uncounted`
///   image_rows [B, S]               the row of each token's image in the encoder, or −1
///   key_end [B, S]                  if an image's tokens see one another: place_key_ends()
///   pixels [B, words]               the images' bytes
///   sample_tokens [B, S]            with experts: the number of the sample's tokens, 0 for padding
class ImageBatches final : public BatchReader {
 public:
  explicit ImageBatches(const deck::Config& config);

  void expect_usable(const Windows& windows) const override;
  void read(const Samples& samples, std::int64_t first, std::int64_t count,
            BatchFields fields) const override;
  void read(const Windows& windows, std::int64_t first, std::int64_t count,
            BatchFields fields) const override;
  std::int64_t counted(BatchFields fields, std::int64_t count) const override;
  std::int64_t text_bytes(BatchFields fields, std::int64_t count,
                          const std::vector<std::int32_t>& bytes_of_token) const override;

 private:
  void read_sample(const Windows& windows, std::int64_t window, std::int64_t place,
                   BatchFields fields) const;
  void clear(std::int64_t count, BatchFields fields) const;
  std::span<std::int32_t> targets(BatchFields fields, std::int64_t count) const;

  std::int64_t sequence_, words_;
  std::size_t tokens_, targets_, rows_, pixels_;  ///< indices of the fields
  std::optional<std::size_t> sample_tokens_, key_ends_;
};

}  // namespace trireme::data
