#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trireme::data {

/// Tokens of a text; the tokens after the context are scored by their likelihood.
struct Request {
  std::vector<std::int32_t> tokens;
  std::int64_t context = 1;  ///< tokens that are not scored: at least 1
};

/// Requests as samples of S tokens, one request per sample, padded with token 0, which a causal
/// model's earlier tokens do not see. Thread-safe.
class Requests {
 public:
  /// Error unless each request has a token to score and at most S + 1 tokens.
  Requests(std::vector<Request> requests, std::int64_t sequence);

  std::int64_t count() const { return std::ssize(requests_); }
  const Request& request(std::int64_t i) const { return requests_[static_cast<std::size_t>(i)]; }
  /// Requests [first, first + count) as inputs and targets [≥ count · S]; targets that are not
  /// scored are `uncounted`.
  void read(std::int64_t first, std::int64_t count, std::span<std::int32_t> inputs,
            std::span<std::int32_t> targets) const;

 private:
  std::vector<Request> requests_;
  std::int64_t sequence_;
};

}  // namespace trireme::data
