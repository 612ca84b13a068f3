#pragma once

#include <trireme/architecture/objective.hpp>
#include <trireme/data/batch_reader.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace trireme::data {

/// Tokens of a text. The tokens after the context are scored, or the likeliest next token is found
/// after the context and after each later token.
struct Request {
  std::vector<std::int32_t> tokens;
  std::int64_t context = 1;               ///< number of tokens of the context: at least 1
  std::vector<std::int32_t> source = {};  ///< tokens that an encoder reads; empty without one
  /// For a model that sees images: of each token, as place_image_rows() sets them; empty without
  /// images.
  std::vector<std::int32_t> image_rows = {};
  std::span<const std::int32_t> pixels = {};  ///< of the images, as TextImages::pixels
};

/// Requests as samples of S tokens, one per sample, padded with token 0 at the end. Thread-safe.
class Requests {
 public:
  /// Requests to score. Error for a request without a token to score or of more than S + 1 tokens.
  Requests(std::vector<Request> requests, std::int64_t sequence);
  /// Requests for the likeliest token among the first `ids` ids. Error for more than S tokens.
  Requests(std::vector<Request> requests, std::int64_t sequence, std::int64_t ids);

  std::int64_t count() const { return std::ssize(requests_); }
  /// Whether likeliest tokens are found instead of scores.
  bool wants_tokens() const { return ids_ > 0; }
  /// If wants_tokens(): number of tokens to find, and index of request i's first token among them.
  std::int64_t wanted() const { return first_.back(); }
  std::int64_t first_wanted(std::int64_t i) const { return first_[static_cast<std::size_t>(i)]; }
  const Request& request(std::int64_t i) const { return requests_[static_cast<std::size_t>(i)]; }
  /// Writes requests [first, first + count) to the first count · S elements of `inputs` and
  /// `targets`. Targets that are neither scored nor found are `uncounted`; targets to find are -1 -
  /// ids (kernels/cross_entropy.hpp).
  void read(std::int64_t first, std::int64_t count, std::span<std::int32_t> inputs,
            std::span<std::int32_t> targets) const;
  /// Writes them to the fields of a batch of `objective`, also their sources. Modules that predict
  /// further tokens get valid ids, and no targets.
  void read(std::int64_t first, std::int64_t count,
            const architecture::TrainingObjective& objective, BatchFields fields) const;

 private:
  void read_sources(std::int64_t first, std::int64_t count,
                    const architecture::TrainingObjective& objective, BatchFields fields) const;
  void read_images(std::int64_t first, std::int64_t count,
                   const architecture::TrainingObjective& objective, BatchFields fields) const;

  std::vector<Request> requests_;
  std::int64_t sequence_;
  std::int64_t ids_ = 0;             ///< 0: requests are scored
  std::vector<std::int64_t> first_;  ///< index of each request's first token to find, then wanted()
};

}  // namespace trireme::data
