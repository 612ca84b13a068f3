#include <trireme/layout/token_places.hpp>

#include <gtest/gtest.h>

#include <vector>

namespace trireme::layout {
namespace {

constexpr std::int64_t lengths[] = {1, 2, 3, 7, 61, 64, 65'536};

TEST(TokenPlaces, RanksHoldEachTokenOnceInEvenParts) {
  for (const std::int64_t sequence : lengths)
    for (std::int64_t ranks = 1; ranks <= 5 && ranks <= sequence; ++ranks) {
      std::vector<int> holders(static_cast<std::size_t>(sequence));
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const TokenPlaces places = token_places(sequence, ranks, rank);
        EXPECT_EQ(places.held, split(sequence, ranks, rank).extent);
        EXPECT_EQ(places.held, places.head.count + places.tail.count);
        EXPECT_EQ(places.is_cut(), ranks > 1);
        for (std::int64_t token = 0; token < places.held; ++token) {
          const std::int64_t position = places.position(token);
          ASSERT_EQ(places.token_at(position), token);
          ++holders[static_cast<std::size_t>(position)];
        }
      }
      EXPECT_EQ(holders, std::vector<int>(static_cast<std::size_t>(sequence), 1));
    }
}

/// Rank i holds the chunks i and 2 c − 1 − i of 2 c: with a causal mask every rank has as many
/// pairs of a query and a key that it sees, but for the tokens that a chunk has more than another.
TEST(TokenPlaces, HeadsAndTailsBalanceACausalMask) {
  const std::int64_t sequence = 4096, ranks = 4;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const TokenPlaces places = token_places(sequence, ranks, rank);
    EXPECT_EQ(places.head.first, rank * 512);
    EXPECT_EQ(places.tail.first, (7 - rank) * 512);
    std::int64_t seen = 0;
    for (std::int64_t token = 0; token < places.held; ++token) seen += places.position(token) + 1;
    EXPECT_EQ(seen, sequence * (sequence + 1) / 2 / ranks);
  }
}

TEST(TokenPlaces, RowsAreNumberedWithinWholeSamples) {
  const TokenPlaces places = token_places(7, 2, 1);  // 3 tokens: head {2, 3}, tail {4}
  const std::vector<std::int64_t> expected{2, 3, 4, 9, 10, 11};
  for (std::int64_t row = 0; row < 6; ++row)
    EXPECT_EQ(places.row(row), expected[static_cast<std::size_t>(row)]);
  EXPECT_EQ(places.from(4).row(1), 11);
  EXPECT_EQ(TokenPlaces{}.from(4).row(1), 5) << "all tokens, of any length";
  EXPECT_EQ(places.token_at(0), -1);
}

}  // namespace
}  // namespace trireme::layout
