#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

/// GPT-2's pattern: English contractions; runs of letters, digits or other characters with an
/// optional space before the run; runs of white space.
inline constexpr char gpt2_pattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// A compiled splitting pattern. Thread-safe.
class WordPattern {
 public:
  /// `source` is in Oniguruma's syntax. UsageError that names `where` if the pattern is not
  /// supported (to_pcre2), does not compile or can match the empty text.
  WordPattern(const std::string& source, const std::string& where);
  ~WordPattern();
  WordPattern(const WordPattern&) = delete;
  WordPattern& operator=(const WordPattern&) = delete;

 private:
  friend class WordMatcher;
  struct Code;
  std::unique_ptr<Code> code_;
};

/// Finds the matches of a pattern, which must outlive this object. Not thread-safe.
class WordMatcher {
 public:
  explicit WordMatcher(const WordPattern& pattern);
  ~WordMatcher();
  WordMatcher(WordMatcher&& other) noexcept;

  struct Range {
    enum class Kind { match, none, partial } kind = Kind::none;
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  /// The first match in `text`, well-formed UTF-8, from `start` on. If further text (unless
  /// `final`) could change the result, the kind is `partial`: no match begins before Range::begin.
  Range find(std::string_view text, std::size_t start, bool final);

 private:
  struct Scratch;
  std::unique_ptr<Scratch> scratch_;
};

/// Splits a text that arrives in pieces into words, in bounded memory. A byte outside well-formed
/// UTF-8 matches as the control character U+001A, but the word keeps the byte.
class WordSplitter {
 public:
  /// The patterns must outlive this object. `add_prefix_space`: put a space before a text that does
  /// not begin with a space.
  WordSplitter(const std::vector<std::unique_ptr<WordPattern>>& patterns, bool add_prefix_space);

  /// Calls `use(std::string_view)` with the words that no later byte can change. UsageError if a
  /// word is longer than 4 MiB.
  template <class Use>
  void feed(std::string_view bytes, const Use& use);
  /// Ends the text: calls `use` with the remaining words. Another text may follow.
  template <class Use>
  void finish(const Use& use);

 private:
  void append(std::string_view bytes);
  /// Validates new bytes and advances checked_, so that subject() is well-formed.
  void validate(bool final);
  void forget_handed_out();
  void limit_word() const;
  std::string_view subject() const {
    return std::string_view(shadow_.empty() ? buffer_ : shadow_).substr(0, checked_);
  }
  template <class Use>
  void cut(bool final, const Use& use);
  /// Splits [begin, end), a word of the first `level` patterns, by the remaining patterns.
  template <class Use>
  void cut_again(std::size_t begin, std::size_t end, std::size_t level, const Use& use);

  std::vector<WordMatcher> matchers_;
  bool add_prefix_space_;
  bool begun_ = false;
  std::string buffer_;       // text that has not been passed to `use`
  std::string shadow_;       // buffer_ with U+001A for stray bytes; "" without stray bytes
  std::size_t checked_ = 0;  // number of validated bytes
  std::size_t start_ = 0;    // beginning of the next word
};

template <class Use>
void WordSplitter::cut_again(std::size_t begin, std::size_t end, std::size_t level,
                             const Use& use) {
  if (level == matchers_.size()) {
    use(std::string_view(buffer_).substr(begin, end - begin));
    return;
  }
  const std::string_view text = subject().substr(0, end);
  while (begin < end) {
    const auto found = matchers_[level].find(text, begin, true);
    const bool none = found.kind != WordMatcher::Range::Kind::match;
    const std::size_t gap_end = none ? end : found.begin;
    if (gap_end > begin) cut_again(begin, gap_end, level + 1, use);
    if (none) return;
    cut_again(found.begin, found.end, level + 1, use);
    begin = found.end;
  }
}

template <class Use>
void WordSplitter::cut(bool final, const Use& use) {
  if (matchers_.empty()) {  // the text is one word
    if (final && !buffer_.empty()) use(std::string_view(buffer_));
    return;
  }
  const std::string_view text = subject();
  while (start_ < text.size()) {
    const auto found = matchers_.front().find(text, start_, final);
    if (found.kind == WordMatcher::Range::Kind::match) {
      if (found.begin > start_) cut_again(start_, found.begin, 1, use);
      cut_again(found.begin, found.end, 1, use);
      start_ = found.end;
      continue;
    }
    if (!final) return;
    cut_again(start_, text.size(), 1, use);
    start_ = text.size();
  }
}

template <class Use>
void WordSplitter::feed(std::string_view bytes, const Use& use) {
  if (bytes.empty()) return;
  append(bytes);
  validate(false);
  cut(false, use);
  forget_handed_out();
  limit_word();
}

template <class Use>
void WordSplitter::finish(const Use& use) {
  validate(true);
  cut(true, use);
  buffer_.clear();
  shadow_.clear();
  checked_ = start_ = 0;
  begun_ = false;
}

}  // namespace trireme::data
