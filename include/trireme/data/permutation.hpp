#pragma once

#include <cstdint>

namespace trireme::data {

/// A pseudo-random bijection of [0, n) computed from (seed, epoch, index): nothing is stored. A
/// generalised Feistel network on [0, a) × [0, a), a = ⌈√n⌉ (Black & Rogaway 2002, "Ciphers with
/// arbitrary finite domains"), with Philox as round function. Images outside [0, n) are
/// permuted again ("cycle walking"), on average less than once.
class Permutation {
 public:
  /// 1 ≤ n ≤ 2^60.
  Permutation(std::int64_t n, std::uint64_t seed, std::uint32_t epoch);
  std::int64_t size() const { return n_; }
  /// The image of `index`, 0 ≤ index < n.
  std::int64_t operator()(std::int64_t index) const;

 private:
  std::int64_t n_;
  std::uint64_t side_;  // a
  std::uint64_t seed_;
  std::uint32_t epoch_;
};

}  // namespace trireme::data
