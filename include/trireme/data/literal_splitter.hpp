#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

/// Finds literals in a text that arrives in pieces: the leftmost literal, and the longest of
/// several at the same position. Holds at most a literal and the white space around it.
class LiteralSplitter {
 public:
  struct Literal {
    std::string content;
    std::int32_t id = 0;
    bool ignored = false;       ///< stays text, but hides the literals within it
    bool strips_left = false;   ///< includes the white space before it
    bool strips_right = false;  ///< includes the white space after it
    bool single_word = false;   ///< stays text next to a word character
  };
  explicit LiteralSplitter(std::vector<Literal> literals);

  bool empty() const { return literals_.empty(); }

  /// Calls `text(std::string_view)` with pieces of the text between literals and `found(id)` for
  /// each literal, in order.
  template <class Text, class Found>
  void feed(std::string_view bytes, const Text& text, const Found& found) {
    if (empty()) return text(bytes);
    held_ += bytes;
    cut(false, text, found);
  }
  /// Ends the text and passes on the remaining text; another text may follow.
  template <class Text, class Found>
  void finish(const Text& text, const Found& found) {
    cut(true, text, found);
    held_.clear();
    scanned_ = done_ = 0;
  }

 private:
  /// Position of a literal, with the white space that it includes.
  struct Place {
    const Literal* literal = nullptr;  // null: no literal begins there
    bool undecided = false;            // depends on the bytes that follow
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  Place place_at(std::size_t at, bool final) const;
  /// The literal that begins at `at`; null if there is none.
  const Literal* literal_at(std::size_t at) const;
  /// End of the text that no later literal can include.
  std::size_t settled_end(bool final) const;
  void forget();
  template <class Text, class Found>
  void cut(bool final, const Text& text, const Found& found);

  std::vector<Literal> literals_;  // by first byte, longest first
  std::array<std::int32_t, 257>
      first_;  // literals of first byte b are first_[b] … first_[b + 1] − 1
  std::array<std::size_t, 256> longest_{};  // longest literal of each first byte
  bool strips_left_ = false;                // some literal strips
  std::string held_;
  std::size_t scanned_ = 0;  // no unmatched literal begins before this offset
  std::size_t done_ = 0;     // bytes passed on
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
    if (place.begin == place.end) continue;  // stays text
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
