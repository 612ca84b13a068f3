#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

/// Finds literals in a text that arrives in pieces: the leftmost, the longest of those that begin
/// there, then continues after it. Bounded memory.
class LiteralSplitter {
 public:
  struct Literal {
    std::string content;
    std::int32_t id = 0;
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
  }

 private:
  /// The literal at `at`; null if there is none.
  const Literal* literal_at(std::size_t at) const;
  template <class Text, class Found>
  void cut(bool final, const Text& text, const Found& found);

  std::vector<Literal> literals_;  // by first byte, longest first
  std::array<std::int32_t, 257>
      first_;  // literals of first byte b are first_[b] … first_[b + 1] − 1
  std::array<std::size_t, 256> longest_{};  // longest literal of each first byte
  std::string held_;
};

template <class Text, class Found>
void LiteralSplitter::cut(bool final, const Text& text, const Found& found) {
  const std::string_view held = held_;
  std::size_t done = 0;
  std::size_t at = 0;
  for (; at < held.size(); ++at) {
    const std::size_t longest = longest_[static_cast<unsigned char>(held[at])];
    if (longest == 0) continue;
    if (!final && held.size() - at < longest) break;  // wait for what follows
    const Literal* literal = literal_at(at);
    if (literal == nullptr) continue;
    if (at > done) text(held.substr(done, at - done));
    found(literal->id);
    done = at + literal->content.size();
    at = done - 1;
  }
  if (at > done) text(held.substr(done, at - done));
  held_.erase(0, at);
}

}  // namespace trireme::data
