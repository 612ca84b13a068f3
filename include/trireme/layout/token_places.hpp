#pragma once

#include <trireme/base/function.hpp>
#include <trireme/layout/split.hpp>

#include <cstdint>

namespace trireme::layout {

/// Consecutive tokens of a sample.
struct Chunk {
  std::int64_t first = 0;  ///< position in the sample
  std::int64_t count = 0;
  bool operator==(const Chunk&) const = default;
};

/// The tokens of every sample that a rank of the context axis holds: a head chunk, then a tail
/// chunk. The ranks' head chunks follow each other in the order of the ranks, and their tail chunks
/// in reverse order, so that with a causal mask all ranks have about the same work (Grattafiori et
/// al. 2024, arXiv 2407.21783, section 3.3.2). A default-constructed object holds all tokens of
/// samples of any length.
struct TokenPlaces {
  std::int64_t sequence = 0;  ///< S, tokens of a sample; 0: any number
  std::int64_t held = 0;      ///< tokens of a sample on this rank
  Chunk head = {};
  Chunk tail = {};
  std::int64_t first_row = 0;  ///< row of the held tokens at which a caller's rows begin

  bool operator==(const TokenPlaces&) const = default;

  TRIREME_FUNCTION bool is_cut() const { return held < sequence; }
  /// Position in the sample of held token `token`.
  TRIREME_FUNCTION std::int64_t position(std::int64_t token) const {
    if (!is_cut()) return token;
    return token < head.count ? head.first + token : tail.first + token - head.count;
  }
  /// Index of the caller's row `row` in an array with all tokens of the samples.
  TRIREME_FUNCTION std::int64_t row(std::int64_t row) const {
    row += first_row;
    return is_cut() ? row / held * sequence + position(row % held) : row;
  }
  /// Number of the held token at a position of the sample; −1 if another rank holds this token.
  TRIREME_FUNCTION std::int64_t token_at(std::int64_t position) const {
    if (!is_cut()) return position;
    if (position >= head.first && position < head.first + head.count) return position - head.first;
    if (position >= tail.first && position < tail.first + tail.count)
      return head.count + position - tail.first;
    return -1;
  }
  /// A copy of this object for rows that begin at held row `first`.
  TokenPlaces from(std::int64_t first) const {
    TokenPlaces part = *this;
    part.first_row = first;
    return part;
  }
};

/// The tokens of rank `rank` of `ranks`: split(sequence, ranks, rank).extent tokens of each sample.
/// Half of them, rounded up, are the head chunk.
inline TokenPlaces token_places(std::int64_t sequence, std::int64_t ranks, std::int64_t rank) {
  TokenPlaces places{sequence, 0, {0, 0}, {sequence, 0}};
  for (std::int64_t r = 0; r <= rank; ++r) {
    places.held = split(sequence, ranks, r).extent;
    places.head.first += places.head.count;
    places.head.count = (places.held + 1) / 2;
    places.tail.count = places.held / 2;
    places.tail.first -= places.tail.count;
  }
  return places;
}

}  // namespace trireme::layout
