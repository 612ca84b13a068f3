#include <trireme/data/permutation.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/philox.hpp>

#include <cmath>

namespace trireme::data {
namespace {

constexpr std::uint32_t rounds = 8;
constexpr std::int64_t size_limit = std::int64_t{1} << 60;

std::uint64_t side_of_square(std::int64_t n) {
  auto side = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(n)));
  while (side * side < static_cast<std::uint64_t>(n)) ++side;
  return side;
}

}  // namespace

Permutation::Permutation(std::int64_t n, std::uint64_t seed, std::uint32_t epoch)
    : n_(n), side_(1), seed_(seed), epoch_(epoch) {
  check(n >= 1 && n <= size_limit, "a permutation of ", n, " numbers, expected 1 to ", size_limit);
  side_ = side_of_square(n);
}

std::int64_t Permutation::operator()(std::int64_t index) const {
  check(index >= 0 && index < n_, "index ", index, " of a permutation of ", n_);
  auto value = static_cast<std::uint64_t>(index);
  do {
    std::uint64_t left = value / side_;
    std::uint64_t right = value % side_;
    for (std::uint32_t round = 0; round < rounds; ++round) {
      const Words4 words = philox({seed_, Purpose::shuffle, round, epoch_}, right);
      const std::uint64_t random = (std::uint64_t{words.w[1]} << 32) | words.w[0];
      const std::uint64_t sum = (left + random % side_) % side_;
      left = right;
      right = sum;
    }
    value = left * side_ + right;
  } while (value >= static_cast<std::uint64_t>(n_));
  return static_cast<std::int64_t>(value);
}

}  // namespace trireme::data
