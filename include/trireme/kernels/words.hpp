#pragma once

#include <trireme/base/philox.hpp>
#include <trireme/kernels/packs.hpp>

#include <cstdint>

/// Random words of Philox for kernels, distributed over lanes. Hosts compute batches of Philox
/// blocks in vectors; on devices each lane computes whole blocks.
namespace trireme::kernels {

namespace detail {

/// Philox blocks that hosts compute at a time; their words fit into a first-level cache.
inline constexpr int word_batch = 64;

/// Computes the words of the blocks [first, first + word_batch): philox() with the blocks as the
/// inner loop, so that the blocks are the lanes of the vector unit.
inline void fill_words(std::uint32_t* words, const RandomKey& key, std::uint64_t first) {
  std::uint32_t c0[word_batch], c1[word_batch], c2[word_batch], c3[word_batch];
  for (int b = 0; b < word_batch; ++b) {
    const std::uint64_t block = first + static_cast<std::uint64_t>(b);
    c0[b] = static_cast<std::uint32_t>(block);
    c1[b] = static_cast<std::uint32_t>(block >> 32);
    c2[b] = (static_cast<std::uint32_t>(key.purpose) << 28) ^ key.stream;
    c3[b] = key.step;
  }
  auto k0 = static_cast<std::uint32_t>(key.seed);
  auto k1 = static_cast<std::uint32_t>(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
#pragma omp simd
    for (int b = 0; b < word_batch; ++b) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53U} * c0[b];
      const std::uint64_t p1 = std::uint64_t{0xCD9E8D57U} * c2[b];
      c0[b] = static_cast<std::uint32_t>(p1 >> 32) ^ c1[b] ^ k0;
      c2[b] = static_cast<std::uint32_t>(p0 >> 32) ^ c3[b] ^ k1;
      c1[b] = static_cast<std::uint32_t>(p1);
      c3[b] = static_cast<std::uint32_t>(p0);
    }
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
#pragma omp simd
  for (int b = 0; b < word_batch; ++b) {
    words[4 * b] = c0[b];
    words[4 * b + 1] = c1[b];
    words[4 * b + 2] = c2[b];
    words[4 * b + 3] = c3[b];
  }
}

}  // namespace detail

/// Calls f(i, word) for every i in [0, n), where word is word first + i of the random array `key`
/// (see philox()). Distributed over the lanes like for_lanes.
template <class Member, class F>
KOKKOS_FORCEINLINE_FUNCTION void for_words(const Member& team, const RandomKey& key,
                                           std::int64_t first, std::int64_t n, const F& f) {
  const auto first_block = static_cast<std::uint64_t>(first) / 4;
  const std::int64_t skip = first % 4;  // unused words of the first block
  if constexpr (std::is_same_v<Member, HostTeam>) {
    constexpr std::int64_t batch = 4 * detail::word_batch;
    std::uint32_t words[batch];
    std::uint64_t block = first_block;
    for (std::int64_t start = -skip; start < n; start += batch, block += detail::word_batch) {
      detail::fill_words(words, key, block);
      const std::int64_t begin = start < 0 ? 0 : start;
      const std::int64_t end = start + batch < n ? start + batch : n;
      const std::uint32_t* word = words + (begin - start);
      for_lanes(team, end - begin, [&](std::int64_t i) { f(begin + i, word[i]); });
    }
  } else {
    for_lanes(team, (skip + n + 3) / 4, [&](std::int64_t b) {
      const Words4 words = philox(key, first_block + static_cast<std::uint64_t>(b));
      for (int j = 0; j < 4; ++j) {
        const std::int64_t i = 4 * b + j - skip;
        if (i >= 0 && i < n) f(i, words.w[j]);
      }
    });
  }
}

namespace detail {

/// map_words on devices; tests also run it on hosts. A lane takes whole blocks of words.
template <class Member, class F, class To, class... From>
KOKKOS_FORCEINLINE_FUNCTION void map_words_by_packs(const Member& team, const RandomKey& key,
                                                    std::int64_t first, std::int64_t n, To* to,
                                                    const F& f, const From*... from) {
  constexpr int width = pack_width<To, From...> < 4 ? 4 : pack_width<To, From...>;
  if (first % 4 == 0 && n % width == 0 && in_packs<width>(to) && (in_packs<width>(from) && ...)) {
    for_lanes(team, n / width, [&](std::int64_t p) {
      std::uint32_t words[width];
      for (int block = 0; block < width / 4; ++block) {
        const Words4 four =
            philox(key, static_cast<std::uint64_t>((first + p * width) / 4 + block));
        for (int j = 0; j < 4; ++j) words[4 * block + j] = four.w[j];
      }
      const std::int64_t begin = p * width;
      map_pack<width>(
          [&](std::int64_t i, auto... values) { return f(i, words[i - begin], values...); }, begin,
          to, pack_at<width>(from, begin)...);
    });
    return;
  }
  for_words(team, key, first, n, [&](std::int64_t i, std::uint32_t word) {
    to[i] = static_cast<To>(f(i, word, static_cast<Accumulate<From>>(from[i])...));
  });
}

}  // namespace detail

/// to[i] = f(i, word, from[i]...) for i in [0, n), with the words of for_words, as in map_lanes.
template <class Member, class F, class To, class... From>
KOKKOS_FORCEINLINE_FUNCTION void map_words(const Member& team, const RandomKey& key,
                                           std::int64_t first, std::int64_t n, To* to, const F& f,
                                           const From*... from) {
  if constexpr (std::is_same_v<Member, HostTeam>)
    for_words(team, key, first, n, [&](std::int64_t i, std::uint32_t word) {
      to[i] = static_cast<To>(f(i, word, static_cast<Accumulate<From>>(from[i])...));
    });
  else
    detail::map_words_by_packs(team, key, first, n, to, f, from...);
}

}  // namespace trireme::kernels
