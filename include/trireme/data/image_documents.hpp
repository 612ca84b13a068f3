#pragma once

#include <trireme/data/token_source.hpp>
#include <trireme/deck/config.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trireme::data {

/// The images of a text that is generated.
struct TextImages {
  std::vector<std::int32_t> rows = {};    ///< of each token, as place_image_rows() sets them
  std::vector<std::int32_t> pixels = {};  ///< [VisionConfig::pixel_words()]; empty without images
};

/// Sets rows[i] for each input that is the id `token` of an image: the row of its patch, or of
/// its square of patches, among the rows of the sample's images in the encoder. Returns the number
/// of such inputs, which are expected to be whole images.
std::int64_t place_image_rows(const deck::VisionConfig& vision, std::int64_t token,
                              std::span<const std::int32_t> inputs, std::span<std::int32_t> rows);

/// The ends of the keys that each token sees, if tokens of an image see one another: ends[i] = i +
/// 1 for text; for consecutive tokens of images, which have rows[i] ≥ 0, one past the last of them,
/// as in transformers' Gemma3Model.
void place_key_ends(std::span<const std::int32_t> rows, std::span<std::int32_t> ends);

/// Samples of one document each, with its images: a document of n tokens is n − 1 inputs and
/// targets, and padding. Documents of one token have none. Thread-safe. The file must outlive the
/// object.
class ImageDocuments {
 public:
  /// UsageError if the file's images do not fit the model, or a document does not fit into
  /// `sequence` tokens; Error if image tokens count in the loss. Reads the offsets of all
  /// documents.
  ImageDocuments(const TokenSource& file, const deck::VisionConfig& vision, std::int64_t sequence);

  std::int64_t samples() const { return file_.documents(); }
  /// Fraction of the samples' tokens that are padding.
  double padding() const;
  /// "1,200 documents with 1,300 images, 12.5 % padding".
  std::string description() const;
  /// Number of a sample's inputs that are not padding.
  std::int64_t tokens(std::int64_t sample) const;
  /// Number of a sample's targets that count in the loss.
  std::int64_t counted(std::int64_t sample) const;

  /// The fields of a sample; all but `pixels` have `sequence` elements. `rows` and `pixels` may be
  /// empty.
  struct Fields {
    std::span<std::int32_t> inputs, targets;
    /// For each input, the row of its image's patch among the rows of the sample's images in the
    /// encoder, or −1.
    std::span<std::int32_t> rows;
    std::span<std::int32_t> pixels;  ///< [VisionConfig::pixel_words()] the images' bytes
  };
  /// Reads a sample. Padding: inputs 0, targets `uncounted`, rows −1, pixels 0.
  void read(std::int64_t sample, const Fields& fields) const;

 private:
  struct Range {
    std::int64_t first = 0, count = 0;
  };
  Range tokens_of(std::int64_t sample) const;
  Range images_of(std::int64_t sample) const;
  void read_rows(std::int64_t sample, std::span<const std::int32_t> inputs, std::int64_t images,
                 std::span<std::int32_t> rows) const;

  const TokenSource& file_;
  deck::VisionConfig vision_;
  std::int64_t sequence_;
  std::optional<ImageForm> form_;
};

}  // namespace trireme::data
