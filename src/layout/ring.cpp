#include <trireme/layout/ring.hpp>

#include <algorithm>

namespace trireme::layout {
namespace {

/// 1 + 2 + … + n, 0 for n < 1.
std::int64_t sum_to(std::int64_t n) {
  return n < 1 ? 0 : n * (n + 1) / 2;
}

/// Sum of max(0, i + first) over i = 0 … n − 1.
std::int64_t sum_above_zero(std::int64_t first, std::int64_t n) {
  return sum_to(first + n - 1) - sum_to(first - 1);
}

/// Number of visible (query, key) pairs. With a window, a query at distance d from the first key of
/// the chunk does not see the first d − window + 1 keys.
std::int64_t pairs_seen(const ChunkPair& pair, const AttentionRing& ring) {
  const std::int64_t queries = pair.queries.count, keys = pair.keys.count;
  const std::int64_t all = pair.same && ring.causal ? sum_to(queries) : queries * keys;
  if (ring.window == 0) return all;
  const std::int64_t first = pair.queries.first - pair.keys.first - ring.window + 1;
  return all - sum_above_zero(first, queries) + sum_above_zero(first - keys, queries);
}

}  // namespace

std::vector<ChunkPair> AttentionRing::pairs(int rank, int step) const {
  const TokenPlaces mine = token_places(sequence, ranks, rank);
  const TokenPlaces theirs = token_places(sequence, ranks, owner(rank, step));
  std::vector<ChunkPair> found;
  const auto add = [&](bool query_tail, bool key_tail) {
    ChunkPair pair{query_tail ? mine.tail : mine.head, key_tail ? theirs.tail : theirs.head,
                   query_tail ? mine.head.count : 0, key_tail ? theirs.head.count : 0};
    if (causal && pair.queries.first < pair.keys.first) return;
    pair.same = step == 0 && query_tail == key_tail;
    pair.seen = pairs_seen(pair, *this);
    if (pair.seen > 0) found.push_back(pair);
  };
  add(false, false);
  if (step == 0) add(true, true);
  add(false, true);
  add(true, false);
  if (step > 0) add(true, true);
  return found;
}

}  // namespace trireme::layout
