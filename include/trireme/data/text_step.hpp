#pragma once

#include <trireme/data/json_node.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

/// Position of a part of a word. A word is a step's input: for a normalizer and the first splitter,
/// the text between two added tokens; for a later splitter, a word of the previous splitter.
struct Edge {
  bool first = true;  ///< the word begins with this part
  bool last = true;   ///< the word ends with this part
  /// For the first step of a chain: the word begins at the document's beginning.
  bool origin = false;
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
  /// Passes the output that no later byte of the word can change to `out`, and returns the number
  /// of bytes consumed. The next call repeats the other bytes before further bytes. With edge.last,
  /// the step consumes all bytes and ends the last word of the output.
  virtual std::size_t run(std::string_view text, Edge edge, TextSink& out) = 0;
  virtual std::unique_ptr<TextStep> copy() const = 0;
  /// Whether the step uses edge.origin.
  virtual bool uses_origin() const { return false; }
};

using TextSteps = std::vector<std::unique_ptr<TextStep>>;

/// Largest number of bytes of a word that a step holds.
inline constexpr std::size_t held_limit_bytes = 16 << 20;

/// UsageError if `held` is longer than held_limit_bytes.
void limit_held(std::string_view held);

/// Runs steps on words that arrive in pieces. Holds the bytes that a step has not consumed.
class TextChain final : public TextSink {
 public:
  /// Copies the steps. `out` must outlive the chain; it receives the words of the last step.
  TextChain(const TextSteps& steps, TextSink& out);
  ~TextChain() override;
  TextChain(TextChain&&) = delete;

  /// `origin`: whether the next word begins with the document's first character.
  void set_origin(bool origin);
  void piece(std::string_view text, bool last) override;

 private:
  class Stage;
  std::vector<std::unique_ptr<Stage>> stages_;  // in order
  TextSink& out_;
};

/// Output of the steps for one short text, as one string.
std::string run_steps(const TextSteps& steps, std::string_view text);

/// The steps of a `normalizer` in a tokenizer.json; none for a null node.
TextSteps make_normalizer(const JsonNode& node);

/// The steps of a `pre_tokenizer` in a tokenizer.json; none for a null node.
TextSteps make_pre_tokenizer(const JsonNode& node);

/// Treatment of the matches of a splitting pattern.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// A step that splits words at the matches of a WordPattern. `invert`: matches and the text between
/// them exchange their roles.
std::unique_ptr<TextStep> make_split_pattern(const std::string& pattern, const std::string& where,
                                             SplitBehavior behavior, bool invert);

/// Words before which Metaspace puts its replacement character: all, a document's first, or none.
enum class PrependScheme { always, first, never };
/// The scheme of a Metaspace pre-tokenizer or decoder.
PrependScheme read_prepend_scheme(const JsonNode& node);

}  // namespace trireme::data
