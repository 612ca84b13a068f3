#pragma once

#include <trireme/base/function.hpp>

#include <cstdint>

namespace trireme {

/// Use of a random number. Two uses never share random numbers.
enum class Purpose : std::uint32_t {
  initialisation = 1,  ///< `stream` is the number of the array
  dropout = 2,
  attention_dropout = 3,
  shuffle = 4,
  sampling = 5,
  masking = 6,   ///< masked tokens, and the choice of segment pairs
  rounding = 7,  ///< of the optimizer's state; `stream` is the number of the array
};

/// Key of one infinite random array. `stream` and `step` distinguish the arrays of one purpose, for
/// example by layer and training step.
struct RandomKey {
  std::uint64_t seed = 0;
  Purpose purpose = Purpose::initialisation;
  std::uint32_t stream = 0;
  std::uint32_t step = 0;
};

/// Four random 32-bit words.
struct Words4 {
  std::uint32_t w[4];
};

/// Block number `block` of the array that `key` identifies, by Philox4x32-10 (Salmon et al. 2011,
/// "Parallel random numbers: as easy as 1, 2, 3", table 2). Element i of the array is word i % 4 of
/// block i / 4. Purpose and stream share one counter word: purpose · 2^28 XOR stream. Streams are
/// below 2^28, or, for adapters, from 2^31 on; no purpose sets the highest bit.
TRIREME_FUNCTION Words4 philox(const RandomKey& key, std::uint64_t block) {
  std::uint32_t c0 = static_cast<std::uint32_t>(block);
  std::uint32_t c1 = static_cast<std::uint32_t>(block >> 32);
  std::uint32_t c2 = (static_cast<std::uint32_t>(key.purpose) << 28) ^ key.stream;
  std::uint32_t c3 = key.step;
  std::uint32_t k0 = static_cast<std::uint32_t>(key.seed);
  std::uint32_t k1 = static_cast<std::uint32_t>(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0;
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c2;
    const std::uint32_t n0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const std::uint32_t n2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(p1);
    c3 = static_cast<std::uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

/// Uniform number in (0, 1) from a random word. It is never 0, so that its logarithm is finite.
TRIREME_FUNCTION double uniform_from_word(std::uint32_t word) {
  return (static_cast<double>(word) + 0.5) * (1.0 / 4294967296.0);
}

}  // namespace trireme
