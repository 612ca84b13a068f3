#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

/// Finds literals in a text that arrives in pieces: the leftmost, the longest of those that begin
/// there, then continues after it. Holds at most a literal and the white space around it.
class LiteralSplitter {
 public:
  struct Literal {
    std::string content;
    std::int32_t id = 0;
    bool ignored = false;       ///< is text, but hides the literals within it
    bool strips_left = false;   ///< takes the white space before it
    bool strips_right = false;  ///< takes the white space after it
    bool single_word = false;   ///< is text beside a character of a word
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
  /// Ends the text: hands out the rest; the next text may follow.
  template <class Text, class Found>
  void finish(const Text& text, const Found& found) {
    cut(true, text, found);
    held_.clear();
    scanned_ = done_ = 0;
  }

 private:
  /// A literal's place, with the white space that it takes.
  struct Place {
    const Literal* literal = nullptr;  // null: none begins there
    bool undecided = false;            // what follows decides
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  Place place_at(std::size_t at, bool final) const;
  /// The literal at `at`; null if there is none.
  const Literal* literal_at(std::size_t at) const;
  /// The end of the text that no later literal takes.
  std::size_t settled_end(bool final) const;
  void forget();
  template <class Text, class Found>
  void cut(bool final, const Text& text, const Found& found);

  std::vector<Literal> literals_;  // by first byte, longest first
  std::array<std::int32_t, 257>
      first_;  // literals of first byte b are first_[b] … first_[b + 1] − 1
  std::array<std::size_t, 256> longest_{};  // longest literal of each first byte
  bool strips_left_ = false;                // a literal does
  std::string held_;
  std::size_t scanned_ = 0;  // no literal that is to be found begins before
  std::size_t done_ = 0;     // handed out
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
    if (!final && held.size() - scanned_ < longest) break;  // wait for what follows
    const Place place = place_at(scanned_, final);
    if (place.undecided) break;
    if (place.literal == nullptr) {
      ++scanned_;
      continue;
    }
    scanned_ += place.literal->content.size();
    if (place.begin == place.end) continue;  // is text
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
