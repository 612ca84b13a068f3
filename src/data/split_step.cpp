// The pre-tokenizer Split and those that split at characters with a property. A finder hands out
// matches in order; the step joins matches and the text between them to words.
#include <trireme/data/split_step.hpp>
#include <trireme/data/unicode.hpp>
#include <trireme/data/word_splitter.hpp>

#include <memory>
#include <utility>

namespace trireme::data {
namespace {

using Range = WordMatcher::Range;

class LiteralFinder {
 public:
  explicit LiteralFinder(std::string literal) : literal_(std::move(literal)) {}
  LiteralFinder copy() const { return *this; }
  Range find(std::string_view text, std::size_t start, bool final) {
    const std::size_t at = text.find(literal_, start);
    if (at != std::string_view::npos) return {Range::Kind::match, at, at + literal_.size()};
    return {final ? Range::Kind::none : Range::Kind::partial, text.size(), text.size()};
  }

 private:
  std::string literal_;
};

class PatternFinder {
 public:
  explicit PatternFinder(std::shared_ptr<const WordPattern> pattern)
      : pattern_(std::move(pattern)), matcher_(*pattern_) {}
  PatternFinder copy() const { return PatternFinder(pattern_); }
  Range find(std::string_view text, std::size_t start, bool final) {
    return matcher_.find(text, start, final);
  }

 private:
  std::shared_ptr<const WordPattern> pattern_;
  WordMatcher matcher_;
};

class CharacterFinder {
 public:
  explicit CharacterFinder(bool (*matches)(char32_t)) : matches_(matches) {}
  CharacterFinder copy() const { return *this; }
  Range find(std::string_view text, std::size_t start, bool) {
    for (std::size_t at = start; at < text.size();) {
      const std::size_t begin = at;
      if (matches_(next_character(text, at))) return {Range::Kind::match, begin, at};
    }
    return {Range::Kind::none, text.size(), text.size()};
  }

 private:
  bool (*matches_)(char32_t);
};

/// Part of a word: a match, or the text between two.
struct Part {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool is_match = false;
};

bool is_joined(SplitBehavior behavior, bool left_is_match, bool right_is_match) {
  switch (behavior) {
    case SplitBehavior::removed:
    case SplitBehavior::isolated:
      return false;
    case SplitBehavior::merged_with_previous:
      return !left_is_match && right_is_match;
    case SplitBehavior::merged_with_next:
      return left_is_match && !right_is_match;
    case SplitBehavior::contiguous:
      return left_is_match == right_is_match;
  }
  return false;
}

template <class Finder>
class Split final : public TextStep {
 public:
  Split(Finder finder, SplitBehavior behavior, bool invert)
      : finder_(std::move(finder)), behavior_(behavior), invert_(invert) {}

  std::size_t run(std::string_view text, Edge edge, TextSink& out) override {
    word_ = {};
    std::size_t at = 0;
    while (at < text.size()) {
      const Range found = finder_.find(text, at, edge.last);
      const bool none = found.kind != Range::Kind::match;
      if (none && !edge.last) break;  // the text after the last match may become part of one
      const std::size_t end = none ? text.size() : found.begin;
      if (end > at) add({at, end, invert_}, text, out);
      if (none) break;
      add({found.begin, found.end, !invert_}, text, out);
      at = found.end;
    }
    const bool alone = behavior_ == SplitBehavior::isolated || behavior_ == SplitBehavior::removed;
    if (!edge.last && !alone) return word_.begin;
    flush(text, out);
    return edge.last ? text.size() : word_.end;
  }
  std::unique_ptr<TextStep> copy() const override {
    return std::make_unique<Split>(finder_.copy(), behavior_, invert_);
  }

 private:
  void add(Part part, std::string_view text, TextSink& out) {
    if (word_.end > word_.begin && is_joined(behavior_, word_.is_match, part.is_match)) {
      word_.end = part.end;
      word_.is_match = part.is_match;  // of the last part
      return;
    }
    flush(text, out);
    word_ = part;
  }
  void flush(std::string_view text, TextSink& out) {
    if (word_.end == word_.begin || (word_.is_match && behavior_ == SplitBehavior::removed)) return;
    out.piece(text.substr(word_.begin, word_.end - word_.begin), true);
  }

  Finder finder_;
  SplitBehavior behavior_;
  bool invert_;
  Part word_;  // begun
};

/// Runs of characters of one class.
class Whitespace final : public TextStep {
 public:
  std::size_t run(std::string_view text, Edge edge, TextSink& out) override {
    std::size_t begin = 0;
    int kind = 0;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t here = at;
      const int next = kind_of(next_character(text, at));
      if (next == kind) continue;
      if (kind != 0) out.piece(text.substr(begin, here - begin), true);
      begin = here;
      kind = next;
    }
    if (kind == 0) return text.size();
    if (!edge.last) return begin;
    out.piece(text.substr(begin), true);
    return text.size();
  }
  std::unique_ptr<TextStep> copy() const override { return std::make_unique<Whitespace>(); }

 private:
  static int kind_of(char32_t c) { return is_word_character(c) ? 1 : is_white_space(c) ? 0 : 2; }
};

template <class Finder>
std::unique_ptr<TextStep> make(Finder finder, SplitBehavior behavior, bool invert) {
  return std::make_unique<Split<Finder>>(std::move(finder), behavior, invert);
}

}  // namespace

std::unique_ptr<TextStep> make_split(std::string literal, SplitBehavior behavior, bool invert) {
  return make(LiteralFinder(std::move(literal)), behavior, invert);
}

std::unique_ptr<TextStep> make_split_pattern(const std::string& pattern, const std::string& where,
                                             SplitBehavior behavior, bool invert) {
  return make(PatternFinder(std::make_shared<const WordPattern>(pattern, where)), behavior, invert);
}

std::unique_ptr<TextStep> make_split_characters(bool (*matches)(char32_t), SplitBehavior behavior) {
  return make(CharacterFinder(matches), behavior, false);
}

std::unique_ptr<TextStep> make_whitespace() {
  return std::make_unique<Whitespace>();
}

}  // namespace trireme::data
