#pragma once

#include <trireme/base/philox.hpp>

#include <algorithm>
#include <cstdint>

namespace trireme::data {

/// Streams of Purpose::masking.
inline constexpr std::uint32_t training_stream = 0;
inline constexpr std::uint32_t evaluation_stream = 1;

/// The random values by which an objective chooses what a sample predicts. They are a function of
/// (seed, stream, sample) on every rank.
class SampleDraw {
 public:
  SampleDraw(std::uint64_t seed, std::uint32_t stream, std::int64_t sample)
      : key_{seed, Purpose::masking, stream, static_cast<std::uint32_t>(sample)},
        block_(static_cast<std::uint64_t>(sample) >> 32 << 32) {}

  /// A random integer in [0, n).
  std::int64_t below(std::int64_t n) {
    const std::uint64_t high = word();
    const double u = static_cast<double>((high << 32 | word()) >> 11) * 0x1p-53;
    return std::min(n - 1, static_cast<std::int64_t>(u * static_cast<double>(n)));
  }

 private:
  std::uint32_t word() {
    if (next_ == 4) {
      words_ = philox(key_, block_++);
      next_ = 0;
    }
    return words_.w[next_++];
  }

  RandomKey key_;
  std::uint64_t block_;
  Words4 words_{};
  int next_ = 4;
};

}  // namespace trireme::data
