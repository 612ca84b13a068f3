#pragma once

#include <trireme/model/decoder.hpp>
#include <trireme/train/generator.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace trireme::train {

/// Texts that are continued together, each in one place of the cache. Selects the tokens of the
/// next pass and stores drawn tokens.
class TextGroup {
 public:
  /// Uses `places` places of the cache from `first_place` on, each for `sequence` tokens, and with
  /// an encoder for a source of up to `source_sequence` tokens. `wide`: tokens of a wide pass.
  /// `whole_images`: tokens of an image see one another, so that each image is in one wide pass.
  TextGroup(std::int32_t first_place, std::int64_t places, std::int64_t sequence,
            std::int64_t source_sequence = 0, std::int64_t wide = model::wide_rows,
            bool whole_images = false);

  bool has_room() const;
  bool empty() const;
  /// Assigns a free place to a text of at least one token, and stores its last `sequence` tokens.
  /// `source`: tokens that the encoder reads; none without an encoder. `images`: of the text.
  void begin(std::size_t text, const std::vector<std::int32_t>& tokens,
             std::vector<std::int32_t> source = {}, data::TextImages images = {});

  struct Pass {
    model::PassWidth width = model::PassWidth::narrow;
    std::vector<model::CachedToken> rows;
    std::vector<std::int32_t> pixels = {};  ///< of a pass over the images of a text
    std::int32_t place = 0;                 ///< of this text in the cache
    bool with_logits = false;               ///< whether to compute logits
  };
  /// Selects the tokens of the next pass. A narrow pass has one token per text, in the row of the
  /// text's place. A wide pass has up to `wide` tokens, without the last tokens of texts, which
  /// only an image's end with: the next pass then has the last token again. A pass over sources has
  /// whole sources; all sources are passed before the next token of a text, and so are the images,
  /// of one text at a time.
  Pass next();
  /// By row: the text whose logits the last pass has computed, or std::nullopt.
  const std::vector<std::optional<std::size_t>>& drawing() const { return drawing_; }
  /// Number of tokens drawn for the text in a row.
  std::int64_t drawn(std::size_t row) const { return places_[row].drawn; }

  /// Appends the token drawn for a row of drawing() if the text `continues`; otherwise frees the
  /// text's place. If the text exceeds the sequence length, only its newer half is kept, and the
  /// next passes compute this half again.
  void append(std::size_t row, std::int32_t token, bool continues);

 private:
  struct Place {
    std::optional<std::size_t> text;
    std::vector<std::int32_t> tokens;           ///< tokens of the text from position 0 on
    std::vector<std::int32_t> source;           ///< tokens of the source until they are passed
    std::vector<std::int32_t> image_rows = {};  ///< of the tokens; empty without images
    std::vector<std::int32_t> pixels = {};      ///< of the images until they are passed
    std::vector<std::int32_t> ends = {};  ///< of the tokens' keys; empty unless images are whole
    std::int64_t passed = 0;              ///< number of tokens that are in the cache
    std::int64_t drawn = 0;

    std::int64_t waiting() const { return std::ssize(tokens) - passed; }
    /// Number of waiting tokens that must be in one pass.
    std::int64_t together() const {
      const auto at = static_cast<std::size_t>(passed);
      return at < ends.size() ? ends[at] - passed : 1;
    }
  };
  Pass next_sources();
  model::CachedToken pass_token(std::size_t place);
  Pass wide_pass();
  void place_ends(Place& place) const;
  static void keep_last(std::vector<std::int32_t>& tokens, std::int64_t most);

  std::int32_t first_place_;
  std::int64_t sequence_;
  std::int64_t source_sequence_;
  std::int64_t wide_;
  bool whole_images_;
  std::vector<Place> places_;
  std::vector<std::optional<std::size_t>> drawing_;
};

}  // namespace trireme::train
