#pragma once

#include <trireme/model/decoder.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace trireme::train {

/// Texts that are continued together, each in a place of the cache: which of their tokens the next
/// pass takes, and what becomes of a drawn token. All ranks that compute these texts have the same
/// state, because all of them get the drawn tokens.
class TextGroup {
 public:
  /// `places` of the cache, from `first_place` on, for texts of at most `sequence` tokens each.
  TextGroup(std::int32_t first_place, std::int64_t places, std::int64_t sequence);

  bool has_room() const;
  bool empty() const;
  /// Puts a text into a free place: its last `sequence` tokens, at least one.
  void begin(std::size_t text, const std::vector<std::int32_t>& tokens);

  struct Pass {
    model::PassWidth width = model::PassWidth::narrow;
    std::vector<model::CachedToken> rows;
    bool with_logits = false;  ///< of the rows whose text has no other token
  };
  /// The tokens that are next. A narrow pass has one token of each text, in the row of its place; a
  /// wide one has many tokens of prompts, if so many wait.
  Pass next();
  /// Texts of which the last pass has computed logits, by row.
  const std::vector<std::optional<std::size_t>>& drawing() const { return drawing_; }
  /// Number of tokens drawn for the text in a row.
  std::int64_t drawn(std::size_t row) const { return places_[row].drawn; }

  /// The token drawn for a row of drawing(). If the text continues, it is appended; otherwise the
  /// text's place is free. A text that fills its place continues with its newer half.
  void append(std::size_t row, std::int32_t token, bool continues);

 private:
  struct Place {
    std::optional<std::size_t> text;
    std::vector<std::int32_t> tokens;  ///< from position 0 on
    std::int64_t passed = 0;           ///< of them in the cache
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
