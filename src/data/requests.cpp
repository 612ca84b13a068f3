#include <trireme/data/requests.hpp>

#include <trireme/base/check.hpp>
#include <trireme/data/token_source.hpp>

#include <algorithm>
#include <utility>

namespace trireme::data {

Requests::Requests(std::vector<Request> requests, std::int64_t sequence)
    : requests_(std::move(requests)), sequence_(sequence) {
  for (const Request& r : requests_)
    check(
        r.context >= 1 && r.context < std::ssize(r.tokens) && std::ssize(r.tokens) <= sequence + 1,
        "a request of ", r.tokens.size(), " tokens, ", r.context,
        " of them not scored, does not fit a sequence of ", sequence);
}

void Requests::read(std::int64_t first, std::int64_t count, std::span<std::int32_t> inputs,
                    std::span<std::int32_t> targets) const {
  for (std::int64_t i = 0; i < count; ++i) {
    const Request& r = request(first + i);
    const auto row = [&](std::span<std::int32_t> all) {
      return all.subspan(static_cast<std::size_t>(i * sequence_),
                         static_cast<std::size_t>(sequence_));
    };
    const auto pairs = std::ssize(r.tokens) - 1;
    std::ranges::fill(row(inputs), 0);
    std::ranges::fill(row(targets), uncounted);
    std::copy_n(r.tokens.begin(), pairs, row(inputs).begin());
    std::copy(r.tokens.begin() + r.context, r.tokens.end(), row(targets).begin() + (r.context - 1));
  }
}

}  // namespace trireme::data
