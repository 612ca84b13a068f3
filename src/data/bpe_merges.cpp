// Applies merges by rank. Short words: a scan finds the pair of the lowest rank. Long words: a
// priority queue of pairs over a linked list.
#include <trireme/data/bpe_merges.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <queue>
#include <utility>

namespace trireme::data {
namespace {

constexpr std::size_t few = 64;  // largest number of tokens for which all pairs are scanned

}  // namespace

BpeMerges::BpeMerges(std::span<const BpeMerge> merges) {
  const std::size_t size = std::bit_ceil(std::max<std::size_t>(16, 2 * merges.size()));
  slots_.resize(size);
  mask_ = size - 1;
  shift_ = 64 - std::countr_zero(size);
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const BpeMerge& merge = merges[rank];
    const std::uint64_t key = key_of(merge.left, merge.right);
    std::size_t i = slot_of(key);
    while (slots_[i].key != empty_key && slots_[i].key != key) i = (i + 1) & mask_;
    // The last of several merges of the same pair counts.
    slots_[i] = {key, static_cast<std::uint32_t>(rank), merge.result};
  }
}

std::size_t BpeMerges::apply(std::span<std::int32_t> tokens) const {
  return tokens.size() <= few ? apply_to_few(tokens) : apply_to_many(tokens);
}

std::size_t BpeMerges::apply_to_few(std::span<std::int32_t> tokens) const {
  std::array<std::uint32_t, few> rank;  // rank of the pair of tokens i and i + 1
  std::array<std::int32_t, few> result;
  std::size_t count = tokens.size();
  const auto look_up = [&](std::size_t i) {
    const Found found = find(tokens[i], tokens[i + 1]);
    rank[i] = found.rank;
    result[i] = found.result;
  };
  for (std::size_t i = 0; i + 1 < count; ++i) look_up(i);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i)
      if (rank[i] < rank[best]) best = i;
    if (rank[best] == none) break;
    tokens[best] = result[best];
    const std::size_t after = count - best - 2;  // tokens after the pair
    std::memmove(&tokens[best + 1], tokens.data() + best + 2, after * sizeof(std::int32_t));
    if (after > 0) {
      std::memmove(&rank[best + 1], rank.data() + best + 2, (after - 1) * sizeof(std::uint32_t));
      std::memmove(&result[best + 1], result.data() + best + 2, (after - 1) * sizeof(std::int32_t));
    }
    --count;
    if (best > 0) look_up(best - 1);
    if (best + 1 < count) look_up(best);
  }
  return count;
}

/// Uses a priority queue of pairs by (rank, position) over a doubly linked list of tokens. An entry
/// of the queue is stale if the pair at the entry's position no longer has the entry's rank.
std::size_t BpeMerges::apply_to_many(std::span<std::int32_t> tokens) const {
  const std::size_t count = tokens.size();
  const auto end = static_cast<std::uint32_t>(count);
  std::vector<std::uint32_t> next(count);
  std::vector<std::uint32_t> previous(count);
  std::vector<std::uint32_t> rank(count, none);
  using Entry = std::pair<std::uint32_t, std::uint32_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  const auto look_up = [&](std::uint32_t i) {
    rank[i] = next[i] == end ? none : find(tokens[i], tokens[next[i]]).rank;
    if (rank[i] != none) queue.emplace(rank[i], i);
  };
  for (std::uint32_t i = 0; i < end; ++i) {
    next[i] = i + 1;
    previous[i] = i == 0 ? end : i - 1;
  }
  for (std::uint32_t i = 0; i < end; ++i) look_up(i);
  while (!queue.empty()) {
    const auto [wanted, i] = queue.top();
    queue.pop();
    if (rank[i] != wanted) continue;
    const std::uint32_t gone = next[i];
    tokens[i] = find(tokens[i], tokens[gone]).result;
    rank[gone] = none;
    next[i] = next[gone];
    if (next[i] != end) previous[next[i]] = i;
    look_up(i);
    if (previous[i] != end) look_up(previous[i]);
  }
  std::size_t kept = 0;
  for (std::uint32_t i = 0; i != end; i = next[i]) tokens[kept++] = tokens[i];
  return kept;
}

}  // namespace trireme::data
