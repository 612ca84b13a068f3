// Finds literals in a text, with white space and words as in the `tokenizers` library.
#include <trireme/data/literal_splitter.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/utf8.hpp>
#include <trireme/data/unicode.hpp>

#include <algorithm>
#include <utility>

namespace trireme::data {
namespace {

constexpr char32_t no_character = 0xFFFD;

/// The last character of a text; no_character if there is none or it is invalid.
char32_t character_before(std::string_view text) {
  const std::string_view character =
      text.substr(text.empty() ? 0 : character_begin(text, text.size() - 1));
  std::size_t at = 0;
  if (character.empty() || utf8_run(character).valid != character.size()) return no_character;
  return next_character(character, at);
}

/// The first character of a non-empty text, and its length in bytes; no_character and 1 if the
/// character is invalid.
std::pair<char32_t, std::size_t> first_character(std::string_view text) {
  const std::string_view character = text.substr(0, 4);
  std::size_t at = 0;
  if (utf8_run(character).valid == 0) return {no_character, 1};
  const char32_t c = next_character(character, at);
  return {c, at};
}

}  // namespace

LiteralSplitter::LiteralSplitter(std::vector<Literal> literals) : literals_(std::move(literals)) {
  const auto first_byte = [](const Literal& l) { return static_cast<unsigned char>(l.content[0]); };
  for (const auto& literal : literals_) check(!literal.content.empty(), "an empty literal");
  std::stable_sort(literals_.begin(), literals_.end(), [&](const Literal& a, const Literal& b) {
    return std::pair(first_byte(a), b.content.size()) < std::pair(first_byte(b), a.content.size());
  });
  first_.fill(0);
  for (const auto& literal : literals_) {
    ++first_[first_byte(literal) + std::size_t{1}];
    auto& longest = longest_[first_byte(literal)];
    longest = std::max(longest, literal.content.size());
    strips_left_ = strips_left_ || literal.strips_left;
  }
  for (std::size_t b = 0; b < 256; ++b) first_[b + 1] += first_[b];
}

const LiteralSplitter::Literal* LiteralSplitter::literal_at(std::size_t at) const {
  const auto byte = static_cast<unsigned char>(held_[at]);
  for (std::int32_t i = first_[byte]; i < first_[byte + std::size_t{1}]; ++i) {
    const Literal& literal = literals_[static_cast<std::size_t>(i)];
    if (held_.compare(at, literal.content.size(), literal.content) == 0) return &literal;
  }
  return nullptr;
}

LiteralSplitter::Place LiteralSplitter::place_at(std::size_t at, bool final) const {
  Place place;
  place.literal = literal_at(at);
  if (place.literal == nullptr || place.literal->ignored) return place;
  const std::string_view held = held_;
  const Literal& literal = *place.literal;
  std::size_t end = at + literal.content.size();
  constexpr std::size_t longest_character = 4;
  if (literal.single_word) {
    place.undecided = !final && held.size() - end < longest_character;
    const bool follows =
        end < held.size() && is_word_character(first_character(held.substr(end)).first);
    if (follows || is_word_character(character_before(held.substr(0, at)))) return place;
  }
  std::size_t begin = at;
  while (literal.strips_left && begin > done_) {
    if (!is_white_space(character_before(held.substr(0, begin)))) break;
    begin = character_begin(held, begin - 1);
  }
  while (literal.strips_right && end < held.size()) {
    const auto [c, bytes] = first_character(held.substr(end));
    if (!is_white_space(c)) break;
    end += bytes;
  }
  if (literal.strips_right && !final && held.size() - end < longest_character)
    place.undecided = true;
  place.begin = std::max(begin, std::min(done_, at));
  place.end = end;
  return place;
}

std::size_t LiteralSplitter::settled_end(bool final) const {
  const std::string_view held = held_;
  if (final) return held.size();
  std::size_t end = scanned_;
  while (strips_left_ && end > done_) {
    // A truncated character may turn out to be white space.
    const std::size_t begin = character_begin(held.substr(0, end), end - 1);
    const bool whole = !utf8_run(held.substr(begin, end - begin)).incomplete;
    if (whole && !is_white_space(character_before(held.substr(0, end)))) break;
    end = begin;
  }
  return end;
}

void LiteralSplitter::forget() {
  constexpr std::size_t context = 4;  // bytes kept for the character before a literal
  const std::size_t kept = scanned_ < context ? 0 : scanned_ - context;
  const std::size_t gone = std::min(done_, kept);
  held_.erase(0, gone);
  done_ -= gone;
  scanned_ -= gone;
}

}  // namespace trireme::data
