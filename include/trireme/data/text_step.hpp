#pragma once

#include <trireme/data/json_node.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

/// Position of a part of a word. A word is the input of a step: for a normalizer, the whole text
/// between two added tokens; for a splitter, a word of the previous splitter.
struct Edge {
  bool first = true;  ///< the word begins with this part
  bool last = true;   ///< the word ends with this part
  bool origin =
      false;  ///< for the first step of a chain: the word begins at the document's beginning
};

/// Receives words in pieces of whole characters.
class TextSink {
 public:
  virtual ~TextSink() = default;
  /// The next piece of the word, which may be empty; `last` ends the word.
  virtual void piece(std::string_view text, bool last) = 0;
};

/// A normalizer or splitter. Words are well-formed UTF-8. Not thread-safe, but copies are
/// independent.
class TextStep {
 public:
  virtual ~TextStep() = default;
  /// Passes on the output that no later byte of the word can change, and returns the number of
  /// bytes consumed; the next call repeats the other bytes, with more after them. With `edge.last`
  /// it consumes all bytes and ends the last word that it has begun.
  virtual std::size_t run(std::string_view text, Edge edge, TextSink& out) = 0;
  virtual std::unique_ptr<TextStep> copy() const = 0;
  /// Whether the step uses edge.origin.
  virtual bool uses_origin() const { return false; }
};

using TextSteps = std::vector<std::unique_ptr<TextStep>>;

/// Longest part of a word that can be held.
inline constexpr std::size_t held_limit_bytes = 16 << 20;

/// UsageError if `held` is longer than held_limit_bytes.
void limit_held(std::string_view held);

/// Runs steps in order on words that arrive in pieces. Holds the bytes that each step has not
/// consumed. Time is linear in the text: a step sees held text again only after it has grown by
/// half.
class TextChain final : public TextSink {
 public:
  /// Copies the steps; `out` receives the words of the last step.
  TextChain(const TextSteps& steps, TextSink& out);
  ~TextChain() override;
  TextChain(TextChain&&) = delete;

  /// Whether the next word begins with the document's first character.
  void set_origin(bool origin);
  void piece(std::string_view text, bool last) override;

 private:
  class Stage;
  std::vector<std::unique_ptr<Stage>> stages_;  // in order
  TextSink& out_;
};

/// Output of a chain for one short text, as one string.
std::string run_steps(const TextSteps& steps, std::string_view text);

/// The steps of `normalizer` of a tokenizer.json; null: none. UsageError for other types.
TextSteps make_normalizer(const JsonNode& node);
/// The steps of `pre_tokenizer` of a tokenizer.json; null: none. UsageError for other types.
TextSteps make_pre_tokenizer(const JsonNode& node);

/// Treatment of the matches of a splitting pattern.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// Splits words at matches of a pattern of word_splitter.hpp. `invert`: the text between matches
/// takes the part of the matches.
std::unique_ptr<TextStep> make_split_pattern(const std::string& pattern, const std::string& where,
                                             SplitBehavior behavior, bool invert);

/// Where Metaspace puts a replacement before a text that does not begin with one.
enum class PrependScheme { always, first, never };
/// The scheme of a Metaspace pre-tokenizer or decoder.
PrependScheme read_prepend_scheme(const JsonNode& node);

}  // namespace trireme::data
