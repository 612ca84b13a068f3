#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace trireme::data {

/// A cache of the ids of recent words: 65,536 entries of 64 bytes, indexed by the word's hash.
/// Words of more than 30 bytes or 8 ids are not cached. Not thread-safe.
class WordCache {
 public:
  static constexpr std::size_t longest_word = 30;
  static constexpr std::size_t most_ids = 8;

  struct alignas(64) Place {
    std::uint8_t bytes = 0;  ///< 0: free
    std::uint8_t count = 0;
    char word[longest_word];
    std::int32_t ids[most_ids];

    bool holds(std::string_view other) const {
      return bytes == other.size() && std::memcmp(word, other.data(), bytes) == 0;
    }
    void keep(std::string_view other, std::span<const std::int32_t> of_other) {
      if (of_other.size() > most_ids) return;
      bytes = static_cast<std::uint8_t>(other.size());
      count = static_cast<std::uint8_t>(of_other.size());
      std::memcpy(word, other.data(), other.size());
      std::memcpy(ids, of_other.data(), of_other.size_bytes());
    }
  };
  static_assert(sizeof(Place) == 64);

  WordCache() : places_(std::size_t{1} << log2_places) {}

  /// Cache entry for a word of 1 to longest_word bytes.
  Place& place(std::string_view word) { return places_[hash(word) >> (64 - log2_places)]; }

 private:
  static constexpr int log2_places = 16;

  static std::uint64_t load(const char* from, std::size_t bytes) {
    std::uint64_t value = 0;
    std::memcpy(&value, from, bytes);
    return value;
  }
  /// Hash that multiplies and folds 8 bytes at a time.
  static std::uint64_t hash(std::string_view word) {
    constexpr std::uint64_t odd = 0x9E3779B97F4A7C15u;
    std::uint64_t h = word.size() * odd;
    const char* at = word.data();
    std::size_t left = word.size();
    for (; left >= 8; at += 8, left -= 8) {
      h = (h ^ load(at, 8)) * odd;
      h ^= h >> 32;
    }
    if (left > 0) {
      std::uint64_t rest = 0;
      if (left >= 4)
        rest = load(at, 4) | load(at + left - 4, 4) << 32;
      else
        rest = load(at, 1) | load(at + left / 2, 1) << 8 | load(at + left - 1, 1) << 16;
      h = (h ^ rest) * odd;
      h ^= h >> 32;
    }
    return h * odd;
  }

  std::vector<Place> places_;
};

/// Appends the ids of a word of 1 byte or more, from the cache or from `encode`.
template <class Encode>
void encode_cached(WordCache& cache, std::string_view word, std::vector<std::int32_t>& out,
                   const Encode& encode) {
  if (word.size() > WordCache::longest_word) return encode(out);
  WordCache::Place& place = cache.place(word);
  if (place.holds(word)) {
    const std::size_t size = out.size();
    out.resize(size + WordCache::most_ids);  // a copy of fixed size is fast
    std::memcpy(out.data() + size, place.ids, sizeof place.ids);
    out.resize(size + place.count);
    return;
  }
  const std::size_t before = out.size();
  encode(out);
  place.keep(word, std::span<const std::int32_t>(out).subspan(before));
}

}  // namespace trireme::data
