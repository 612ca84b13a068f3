#pragma once

#include <trireme/model/decoder.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace trireme::train {

/// Texts that are continued together, each in one place of the cache. Selects the tokens of the
/// next pass and stores drawn tokens. All ranks that compute these texts have the same state,
/// because all of them receive the drawn tokens.
class TextGroup {
 public:
  /// Uses `places` places of the cache from `first_place` on, for texts of at most `sequence`
  /// tokens.
  TextGroup(std::int32_t first_place, std::int64_t places, std::int64_t sequence);

  bool has_room() const;
  bool empty() const;
  /// Puts the last `sequence` tokens of a text, at least one, into a free place.
  void begin(std::size_t text, const std::vector<std::int32_t>& tokens);

  struct Pass {
    model::PassWidth width = model::PassWidth::narrow;
    std::vector<model::CachedToken> rows;
    bool with_logits = false;  ///< compute logits of each row with its text's last token
  };
  /// Selects the next tokens. A narrow pass has one token per text, in the row of its place; a wide
  /// pass has many tokens of prompts, if enough are waiting.
  Pass next();
  /// Texts whose logits the last pass has computed, by row.
  const std::vector<std::optional<std::size_t>>& drawing() const { return drawing_; }
  /// Number of tokens drawn for the text in a row.
  std::int64_t drawn(std::size_t row) const { return places_[row].drawn; }

  /// Stores the token drawn for a row of drawing(). If the text continues, the token is appended;
  /// otherwise the text's place becomes free. A text that fills its place continues with its newer
  /// half.
  void append(std::size_t row, std::int32_t token, bool continues);

 private:
  struct Place {
    std::optional<std::size_t> text;
    std::vector<std::int32_t> tokens;  ///< from position 0 on
    std::int64_t passed = 0;           ///< tokens that are in the cache
    std::int64_t drawn = 0;

    std::int64_t waiting() const { return std::ssize(tokens) - passed; }
  };
  model::CachedToken pass_token(std::size_t place);
  static void keep_last(std::vector<std::int32_t>& tokens, std::int64_t most);

  std::int32_t first_place_;
  std::int64_t sequence_;
  std::vector<Place> places_;
  std::vector<std::optional<std::size_t>> drawing_;
};

}  // namespace trireme::train
