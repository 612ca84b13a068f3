#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/base/check.hpp>
#include <trireme/checkpoint/reader.hpp>
#include <trireme/data/image_documents.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/grid/runtime.hpp>

#include <cstdint>
#include <memory>
#include <vector>

namespace trireme::train {

/// Rule by which the next token is drawn.
struct Sampling {
  double temperature = 1;  ///< 0: always the likeliest token
  std::int64_t top_k = 0;  ///< draw among the k likeliest tokens; 0: all tokens
  std::uint64_t seed = 1;
  std::int64_t ids = 0;  ///< draw among ids below this number, which have a text; 0: all ids
  /// Draw among the fewest likeliest tokens with at least this share of the top_k tokens'
  /// probability (Holtzman et al. 2019, arXiv 1904.09751); 1: all tokens.
  double top_p = 1;
  /// Draw among tokens with at least this share of the largest probability (Nguyen et al. 2024,
  /// arXiv 2407.01082); 0: all tokens.
  double min_p = 0;
};

/// Thrown if a logit is infinite or NaN.
class LogitError : public Error {
 public:
  using Error::Error;
};

/// Id of a token drawn from `logits` [V]. The random number depends only on the seed, `sample` (the
/// text's number) and `position` (number of tokens drawn before). Throws LogitError.
std::int32_t draw(const std::vector<double>& logits, const Sampling& sampling, std::uint32_t sample,
                  std::uint64_t position);

/// Texts to continue, and receiver of their generated tokens.
class Continuations {
 public:
  virtual ~Continuations() = default;
  virtual std::size_t count() const = 0;
  /// Begins text i and returns its tokens so far, at least one; with an encoder, the source of the
  /// text instead, of at most [encoder] sequence tokens.
  virtual std::vector<std::int32_t> begin(std::size_t i) = 0;
  /// The images of text i after begin(i); empty without images.
  virtual data::TextImages images(std::size_t) { return {}; }
  /// Index of text i among all texts of the command.
  virtual std::uint32_t sample(std::size_t i) const = 0;
  /// Receives the next token of text i. Returns false if the text ends with this token.
  virtual bool take(std::size_t i, std::int32_t token) = 0;
  /// Called when text i has no further tokens.
  virtual void end(std::size_t i) = 0;
};

/// Continues token sequences with a trained model. Each replica has separate texts.
class Generator {
 public:
  virtual ~Generator() = default;
  virtual void load(const checkpoint::Reader& reader) = 0;

  /// Generates tokens for each of the replica's texts. A text ends early at `end_token`, which
  /// Continuations::take() does not receive, or if take() returns false. When a text exceeds the
  /// model's sequence length, its newer half stays as context; with an encoder, the whole text
  /// stays. All ranks of the replica must pass the same texts, and receive all tokens. If a logit
  /// is not finite, ranks with logits throw LogitError, and other ranks return.
  virtual void generate(Continuations& texts, std::int32_t end_token, const Sampling& sampling) = 0;
};

/// Numbers of texts and tokens for which a generator has memory.
struct GeneratorSizes {
  std::int64_t texts = 1;   ///< of a replica at a time
  std::int64_t tokens = 1;  ///< largest number of tokens that are generated for a text
};

/// A generator on the ranks of `grid`. Arguments must outlive the generator.
std::unique_ptr<Generator> make_generator(const deck::Config& config,
                                          const architecture::Architecture& architecture,
                                          grid::Grid& grid, const GeneratorSizes& sizes);

}  // namespace trireme::train
