// The types of pre-tokenizers in a tokenizer.json.

#include <trireme/data/text_step.hpp>
#include <trireme/data/unicode.hpp>
#include <trireme/data/word_splitter.hpp>

#include <array>
#include <memory>
#include <utility>

namespace trireme::data {
namespace {

// Pre-tokenizers that split at the matches of a finder: Split, and splits at characters of a kind.

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

/// Part of a word: a match, or the text between two matches.
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
      if (none && !edge.last) break;  // the text after the last match may become part of a match
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
      word_.is_match = part.is_match;  // whether the last part is a match
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
  Part word_;  // the word that further parts may continue
};

/// Makes words of runs of word characters and of runs of other characters. Removes white space.
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

/// Splits words at the occurrences of a literal. `invert` as in make_split_pattern().
std::unique_ptr<TextStep> make_split(std::string literal, SplitBehavior behavior, bool invert) {
  return make(LiteralFinder(std::move(literal)), behavior, invert);
}

std::unique_ptr<TextStep> make_split_characters(bool (*matches)(char32_t), SplitBehavior behavior) {
  return make(CharacterFinder(matches), behavior, false);
}

std::unique_ptr<TextStep> make_whitespace() {
  return std::make_unique<Whitespace>();
}

// Pre-tokenizers that put a character before words: Metaspace, and the step for ByteLevel's space.

class Metaspace final : public TextStep {
 public:
  Metaspace(char32_t replacement, PrependScheme scheme, bool split)
      : replacement_(replacement), mark_(utf8_of(replacement)), scheme_(scheme), split_(split) {}

  std::size_t run(std::string_view text, Edge edge, TextSink& out) override {
    word_.clear();
    bool begun = !edge.first;  // the word has bytes, which may have been passed on
    if (edge.first && !text.empty() && prepends(edge) && !begins_with_mark(text, 0)) {
      word_ = mark_;
      begun = true;
    }
    for (std::size_t at = 0; at < text.size(); begun = true) {
      if (begins_with_mark(text, at)) {
        if (split_ && begun) {
          out.piece(word_, true);
          word_.clear();
        }
        word_ += mark_;
        at += text[at] == ' ' ? 1 : mark_.size();
        continue;
      }
      const std::size_t begin = at;
      next_character(text, at);
      word_ += text.substr(begin, at - begin);
    }
    if (!word_.empty() || edge.last) out.piece(word_, edge.last);
    return text.size();
  }
  std::unique_ptr<TextStep> copy() const override {
    return std::make_unique<Metaspace>(replacement_, scheme_, split_);
  }

  bool uses_origin() const override { return scheme_ == PrependScheme::first; }

 private:
  bool prepends(Edge edge) const {
    return scheme_ == PrependScheme::always || (scheme_ == PrependScheme::first && edge.origin);
  }
  bool begins_with_mark(std::string_view text, std::size_t at) const {
    return text[at] == ' ' || text.compare(at, mark_.size(), mark_) == 0;
  }

  char32_t replacement_;
  std::string mark_;
  PrependScheme scheme_;
  bool split_;
  std::string word_;
};

class PrefixSpace final : public TextStep {
 public:
  std::size_t run(std::string_view text, Edge edge, TextSink& out) override {
    if (edge.first && !text.empty() && text[0] != ' ') out.piece(" ", false);
    if (!text.empty() || edge.last) out.piece(text, edge.last);
    return text.size();
  }
  std::unique_ptr<TextStep> copy() const override { return std::make_unique<PrefixSpace>(); }
};

/// Replaces spaces by `replacement`, and puts `replacement` before the words that `scheme` selects,
/// unless a word begins with it. `split`: splits words before each `replacement`.
std::unique_ptr<TextStep> make_metaspace(char32_t replacement, PrependScheme scheme, bool split) {
  return std::make_unique<Metaspace>(replacement, scheme, split);
}

/// Puts a space before a word that does not begin with a space.
std::unique_ptr<TextStep> make_prefix_space() {
  return std::make_unique<PrefixSpace>();
}

constexpr std::size_t most_parts = 64;
constexpr int most_levels = 8;

using Build = void (*)(const JsonNode&, int levels, TextSteps&);

void add(const JsonNode& node, int levels, TextSteps& steps);

SplitBehavior behavior_of(const JsonNode& node) {
  constexpr std::array<std::pair<const char*, SplitBehavior>, 5> names{{
      {"Removed", SplitBehavior::removed},
      {"Isolated", SplitBehavior::isolated},
      {"MergedWithPrevious", SplitBehavior::merged_with_previous},
      {"MergedWithNext", SplitBehavior::merged_with_next},
      {"Contiguous", SplitBehavior::contiguous},
  }};
  for (const auto& [name, behavior] : names)
    if (node.json == name) return behavior;
  node.refuse(
      "\"Removed\", \"Isolated\", \"MergedWithPrevious\", \"MergedWithNext\" or \"Contiguous\"");
}

void bert(const JsonNode&, int, TextSteps& steps) {
  steps.push_back(make_split_characters(is_white_space, SplitBehavior::removed));
  steps.push_back(make_split_characters(is_punctuation, SplitBehavior::isolated));
}

void byte_level(const JsonNode& node, int, TextSteps& steps) {
  if (node["add_prefix_space"].flag(true)) steps.push_back(make_prefix_space());
  if (node["use_regex"].flag(true))
    steps.push_back(make_split_pattern(gpt2_pattern, node.path, SplitBehavior::isolated, false));
  steps.push_back(make_character_map(to_byte_characters));
}

void digits(const JsonNode& node, int, TextSteps& steps) {
  steps.push_back(make_split_characters(is_numeric, node["individual_digits"].flag(false)
                                                        ? SplitBehavior::isolated
                                                        : SplitBehavior::contiguous));
}

void metaspace(const JsonNode& node, int, TextSteps& steps) {
  const JsonNode replacement = node["replacement"];
  const PrependScheme scheme = read_prepend_scheme(node);
  if (scheme == PrependScheme::first && !steps.empty())
    node["prepend_scheme"].refuse("\"always\" or \"never\" after another pre-tokenizer");
  steps.push_back(make_metaspace(replacement.character(), scheme, node["split"].flag(true)));
}

void punctuation(const JsonNode& node, int, TextSteps& steps) {
  const JsonNode behavior = node["behavior"];
  steps.push_back(make_split_characters(
      is_punctuation, behavior.json.is_null() ? SplitBehavior::isolated : behavior_of(behavior)));
}

void split(const JsonNode& node, int, TextSteps& steps) {
  const SplitBehavior behavior = behavior_of(node["behavior"]);
  const bool invert = node["invert"].flag(false);
  const JsonNode pattern = node["pattern"];
  if (pattern.json.is_object() && pattern.json.contains("Regex")) {
    const JsonNode source = pattern["Regex"];
    steps.push_back(make_split_pattern(source.string(), source.path, behavior, invert));
    return;
  }
  if (!pattern.json.is_object() || pattern["String"].is_nothing())
    pattern.refuse("{\"String\": ...} or {\"Regex\": ...}");
  steps.push_back(make_split(pattern["String"].string(), behavior, invert));
}

void whitespace(const JsonNode&, int, TextSteps& steps) {
  steps.push_back(make_whitespace());
}

void whitespace_split(const JsonNode&, int, TextSteps& steps) {
  steps.push_back(make_split_characters(is_white_space, SplitBehavior::removed));
}

void sequence(const JsonNode& node, int levels, TextSteps& steps) {
  const JsonNode list = node["pretokenizers"];
  const std::size_t size = list.list_size(most_parts, "a list of at most 64 pre-tokenizers");
  for (std::size_t i = 0; i < size; ++i) add(list[i], levels - 1, steps);
}

constexpr std::array<JsonPart<Build>, 9> table{{
    {"BertPreTokenizer", bert},
    {"ByteLevel", byte_level},
    {"Digits", digits},
    {"Metaspace", metaspace},
    {"Punctuation", punctuation},
    {"Sequence", sequence},
    {"Split", split},
    {"Whitespace", whitespace},
    {"WhitespaceSplit", whitespace_split},
}};

void add(const JsonNode& node, int levels, TextSteps& steps) {
  if (levels == 0 || steps.size() > most_parts)
    node.refuse("at most 8 levels and 64 pre-tokenizers");
  part_of_type(node, table).build(node, levels, steps);
}

}  // namespace

std::unique_ptr<TextStep> make_split_pattern(const std::string& pattern, const std::string& where,
                                             SplitBehavior behavior, bool invert) {
  return make(PatternFinder(std::make_shared<const WordPattern>(pattern, where)), behavior, invert);
}

PrependScheme read_prepend_scheme(const JsonNode& node) {
  const JsonNode named = node["prepend_scheme"];
  const JsonNode older = node["add_prefix_space"];
  PrependScheme scheme = PrependScheme::always;
  if (named.json == "first")
    scheme = PrependScheme::first;
  else if (named.json == "never")
    scheme = PrependScheme::never;
  else if (!named.json.is_null() && named.json != "always")
    named.refuse("\"always\", \"first\" or \"never\"");
  if (older.flag(true)) return scheme;
  if (!named.json.is_null() && scheme != PrependScheme::never)
    named.refuse("\"never\" with add_prefix_space = false");
  return PrependScheme::never;
}

TextSteps make_pre_tokenizer(const JsonNode& node) {
  TextSteps steps;
  if (!node.json.is_null()) add(node, most_levels, steps);
  return steps;
}

}  // namespace trireme::data
