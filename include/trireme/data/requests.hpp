#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trireme::data {

/// Tokens of a text. The tokens after the context are scored by their likelihood, or the likeliest
/// token after the context and after each of them is found.
struct Request {
  std::vector<std::int32_t> tokens;
  std::int64_t context = 1;  ///< tokens that are given: at least 1
};

/// Requests as samples of S tokens, one request per sample, padded with token 0, which a causal
/// model's earlier tokens do not see. Thread-safe.
class Requests {
 public:
  /// Error unless each request has a token to score and at most S + 1 tokens.
  Requests(std::vector<Request> requests, std::int64_t sequence);
  /// Requests for the likeliest of the first `ids` ids. Error unless each has at most S tokens.
  Requests(std::vector<Request> requests, std::int64_t sequence, std::int64_t ids);

  std::int64_t count() const { return std::ssize(requests_); }
  /// Whether likeliest tokens are found instead of scores.
  bool wants_tokens() const { return ids_ > 0; }
  /// Number of all tokens to find, and the index of a request's first token among them.
  std::int64_t wanted() const { return first_.back(); }
  std::int64_t first_wanted(std::int64_t i) const { return first_[static_cast<std::size_t>(i)]; }
  const Request& request(std::int64_t i) const { return requests_[static_cast<std::size_t>(i)]; }
  /// Requests [first, first + count) as inputs and targets [≥ count · S]; targets that are not
  /// scored are `uncounted`, and targets to find are -1 - ids (kernels/cross_entropy.hpp).
  void read(std::int64_t first, std::int64_t count, std::span<std::int32_t> inputs,
            std::span<std::int32_t> targets) const;

 private:
  std::vector<Request> requests_;
  std::int64_t sequence_;
  std::int64_t ids_ = 0;             ///< 0: requests are scored
  std::vector<std::int64_t> first_;  ///< index of each request's first token to find, and the end
};

}  // namespace trireme::data
