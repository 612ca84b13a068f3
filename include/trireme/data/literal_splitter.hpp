#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

/// Finds literals in a text that arrives in pieces: the leftmost, at the same position the longest.
class LiteralSplitter {
 public:
  struct Literal {
    std::string content;
    std::int32_t id = 0;
    bool ignored = false;       ///< remains text; literals within it are not found
    bool strips_left = false;   ///< a match includes the white space before the literal
    bool strips_right = false;  ///< a match includes the white space after the literal
    bool single_word = false;   ///< remains text if a word character is adjacent
  };
  explicit LiteralSplitter(std::vector<Literal> literals);

  bool empty() const { return literals_.empty(); }

  /// Calls `text(std::string_view)` for pieces between literals and `found(id)` for literals, in
  /// order.
  template <class Text, class Found>
  void feed(std::string_view bytes, const Text& text, const Found& found) {
    if (empty()) return text(bytes);
    held_ += bytes;
    cut(false, text, found);
  }
  /// Ends the text and passes on the remaining text and literals. Another text may follow.
  template <class Text, class Found>
  void finish(const Text& text, const Found& found) {
    cut(true, text, found);
    held_.clear();
    scanned_ = done_ = 0;
  }

 private:
  /// A literal's match [begin, end), with white space. Empty: the literal remains text.
  struct Place {
    const Literal* literal = nullptr;  // null: no literal begins here
    bool undecided = false;            // the match depends on bytes that follow
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  Place place_at(std::size_t at, bool final) const;
  /// The longest literal that begins at `at`; null if there is none.
  const Literal* literal_at(std::size_t at) const;
  /// End of the text that no later match can include.
  std::size_t settled_end(bool final) const;
  void forget();
  template <class Text, class Found>
  void cut(bool final, const Text& text, const Found& found);

  std::vector<Literal> literals_;  // sorted by first byte, then longest first
  std::array<std::int32_t, 257>
      first_;  // indices of literals with first byte b: first_[b] … first_[b + 1] − 1
  std::array<std::size_t, 256> longest_{};  // length of the longest literal by first byte
  bool strips_left_ = false;                // some literal has strips_left
  std::string held_;
  std::size_t scanned_ = 0;  // all literals before this offset of held_ have been found
  std::size_t done_ = 0;     // bytes of held_ that are passed on or matched
};

template <class Text, class Found>
void LiteralSplitter::cut(bool final, const Text& text, const Found& found) {
  const std::string_view held = held_;
  while (scanned_ < held.size()) {
    const std::size_t longest = longest_[static_cast<unsigned char>(held[scanned_])];
    if (longest == 0) {
      ++scanned_;
      continue;
    }
    if (!final && held.size() - scanned_ < longest) break;  // needs more bytes
    const Place place = place_at(scanned_, final);
    if (place.undecided) break;
    if (place.literal == nullptr) {
      ++scanned_;
      continue;
    }
    scanned_ += place.literal->content.size();
    if (place.begin == place.end) continue;  // the literal remains text
    if (place.begin > done_) text(held.substr(done_, place.begin - done_));
    found(place.literal->id);
    done_ = place.end;
  }
  const std::size_t end = settled_end(final);
  if (end > done_) {
    text(held.substr(done_, end - done_));
    done_ = end;
  }
  if (!final) forget();
}

}  // namespace trireme::data
