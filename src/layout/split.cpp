#include <trireme/layout/split.hpp>

#include <trireme/base/check.hpp>

#include <algorithm>

namespace trireme::layout {
namespace {

/// Two sums of costs with a smaller relative difference than this differ only by rounding.
constexpr double rounding = 1e-12;

class Chain {
 public:
  Chain(std::span<const double> before, std::int64_t n) : before_(before), n_(n) {}

  double cost(std::int64_t begin, std::int64_t end) const { return at(end) - at(begin); }

  /// The end of the longest part that begins at `begin` and costs at most `most`.
  std::int64_t longest(std::int64_t begin, double most) const {
    const double limit = at(begin) + most + rounding * at(n_);
    const auto first = before_.begin() + begin;
    return std::upper_bound(first, before_.begin() + n_ + 1, limit) - before_.begin() - 1;
  }

  /// Whether the items from `begin` on fit into `parts` parts that each cost at most `most`.
  bool fits(std::int64_t begin, std::int64_t parts, double most) const {
    for (; parts > 0 && begin < n_; --parts) begin = longest(begin, most);
    return begin == n_;
  }

  /// The smallest possible value of the largest cost of `parts` parts, by bisection.
  double lowest(std::int64_t parts) const {
    double low = at(n_) / static_cast<double>(parts), high = at(n_);
    for (std::int64_t i = 0; i < n_; ++i) low = std::max(low, cost(i, i + 1));
    if (fits(0, parts, low)) return low;
    while (high - low > rounding * high) {
      const double middle = low + (high - low) / 2;
      (fits(0, parts, middle) ? high : low) = middle;
    }
    return high;
  }

  /// The end of the first of `parts` parts from `begin` on that each cost at most `most`.
  std::int64_t first_end(std::int64_t begin, std::int64_t parts, double most) const {
    const std::int64_t last = longest(begin, most);
    const double mean = cost(begin, n_) / static_cast<double>(parts);
    const double wanted = at(begin) + mean - rounding * at(n_);
    std::int64_t end =
        std::lower_bound(before_.begin() + begin, before_.begin() + last, wanted) - before_.begin();
    while (end < last && !fits(end, parts - 1, most)) ++end;
    return end;
  }

 private:
  double at(std::int64_t i) const { return before_[static_cast<std::size_t>(i)]; }

  std::span<const double> before_;
  std::int64_t n_;
};

}  // namespace

std::vector<Slice> cut_by_cost(std::span<const double> before, std::int64_t n, std::int64_t parts) {
  check(parts >= 1 && n >= 0 && n < std::ssize(before), "cuts of ", n, " items, with costs of ",
        std::ssize(before) - 1, ", into ", parts, " parts");
  const Chain chain(before, n);
  const double most = chain.lowest(parts);
  std::vector<Slice> cuts;
  std::int64_t begin = 0;
  for (std::int64_t left = parts; left > 0; --left) {
    const std::int64_t end = left == 1 ? n : chain.first_end(begin, left, most);
    cuts.push_back({begin, end - begin});
    begin = end;
  }
  return cuts;
}

}  // namespace trireme::layout
