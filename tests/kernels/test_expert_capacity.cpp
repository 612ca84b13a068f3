#include <trireme/kernels/expert_capacity.hpp>

#include <trireme/base/check.hpp>
#include <trireme/kernels/experts.hpp>
#include <trireme/layout/token_places.hpp>

#include "support/device_array.hpp"

#include "kernels/cases.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace trireme::kernels {
namespace {

using trireme::testing::DeviceArray;

/// Choices of `active` ascending experts for each token of each sample; low numbers are frequent.
struct Choices {
  std::int64_t samples, sequence, experts, active;
  std::vector<std::int64_t> chosen;

  Choices(std::int64_t B, std::int64_t S, std::int64_t E, std::int64_t k)
      : samples(B), sequence(S), experts(E), active(k) {
    std::mt19937 generator(11);
    for (std::int64_t t = 0; t < B * S; ++t) {
      std::vector<std::int64_t> mine;
      while (std::ssize(mine) < k) {
        const auto draw = static_cast<std::int64_t>(generator());
        const std::int64_t e = draw % 3 == 0 ? draw / 3 % E : draw / 3 % std::min(E, k + 1);
        if (std::ranges::count(mine, e) == 0) mine.push_back(e);
      }
      std::ranges::sort(mine);
      chosen.insert(chosen.end(), mine.begin(), mine.end());
    }
  }
  std::size_t at(std::int64_t sample, std::int64_t position, std::int64_t j) const {
    return static_cast<std::size_t>((sample * sequence + position) * active + j);
  }
  /// The numbers after the limit, by a plain loop over whole samples.
  std::vector<std::int64_t> limited(std::int64_t limit) const {
    std::vector<std::int64_t> numbers = chosen;
    for (std::int64_t b = 0; b < samples; ++b) {
      std::vector<std::int64_t> used(static_cast<std::size_t>(experts));
      for (std::int64_t t = 0; t < sequence; ++t)
        for (std::int64_t j = 0; j < active; ++j) {
          std::int64_t& number = numbers[at(b, t, j)];
          if (used[static_cast<std::size_t>(number)]++ >= limit) number = -1 - number;
        }
    }
    return numbers;
  }
};

/// A context rank's part of the routes.
struct Part {
  layout::TokenPlaces places;
  SampleChunks chunks;

  Part(const Choices& all, int ranks, int rank)
      : places(layout::token_places(all.sequence, ranks, rank)),
        chunks{places.held, places.head.count, rank, 2 * ranks - 1 - rank, 2 * ranks} {
    if (ranks == 1) chunks = {all.sequence, all.sequence};
  }
};

template <class A>
void expect_limited(const Choices& all, int ranks, std::int64_t limit) {
  SCOPED_TRACE(text(all.samples, " samples of ", all.sequence, " tokens, ", all.active, " of ",
                    all.experts, " experts, ", ranks, " ranks, limit ", limit));
  const std::vector<std::int64_t> expected = all.limited(limit);
  std::vector<std::vector<A>> routes;
  std::vector<A> sums;
  for (int rank = 0; rank < ranks; ++rank) {
    const Part part(all, ranks, rank);
    auto& mine = routes.emplace_back();
    for (std::int64_t b = 0; b < all.samples; ++b)
      for (std::int64_t t = 0; t < part.places.held; ++t) {
        mine.insert(mine.end(), static_cast<std::size_t>(all.active), A(0.25));
        for (std::int64_t j = 0; j < all.active; ++j)
          mine.push_back(
              static_cast<A>(all.chosen[all.at(b, ranks == 1 ? t : part.places.position(t), j)]));
      }
    const DeviceArray<A> of_routes(mine);
    const DeviceArray<A> counts(all.samples * part.chunks.count * all.experts, A(-3));
    count_chunks<A>(Exec{}, counts.matrix(all.samples * part.chunks.count, all.experts),
                    of_routes.matrix(all.samples * part.places.held, 2 * all.active), part.chunks);
    const std::vector<A> found = counts.values();
    sums.resize(found.size());
    for (std::size_t i = 0; i < found.size(); ++i) sums[i] += found[i];
  }
  for (int rank = 0; rank < ranks; ++rank) {
    const Part part(all, ranks, rank);
    const std::int64_t tokens = all.samples * part.places.held;
    const DeviceArray<A> of_routes(routes[static_cast<std::size_t>(rank)]), counts(sums);
    const DeviceArray<double> dropped(1, 5.0);
    const auto matrix = of_routes.matrix(tokens, 2 * all.active);
    drop_routes<A>(Exec{}, matrix, counts.matrix(all.samples * part.chunks.count, all.experts),
                   part.chunks, limit);
    count_dropped<A>(Exec{}, dropped.flat(), matrix);
    const std::vector<A> found = of_routes.values();
    double count = 5;
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t j = 0; j < all.active; ++j) {
        const std::int64_t position =
            ranks == 1 ? t % all.sequence : part.places.position(t % part.places.held);
        const std::int64_t number = expected[all.at(t / part.places.held, position, j)];
        const auto row = static_cast<std::size_t>(t * 2 * all.active + j);
        EXPECT_EQ(found[row], A(0.25));
        EXPECT_EQ(found[row + static_cast<std::size_t>(all.active)], static_cast<A>(number));
        count += number < 0 ? 1 : 0;
      }
    EXPECT_EQ(dropped.values().front(), count);
  }
}

template <class A>
class ExpertCapacity : public ::testing::Test {};
TYPED_TEST_SUITE(ExpertCapacity, WideTypes);

TYPED_TEST(ExpertCapacity, KeepsTheFirstTokensOfEachSample) {
  for (const auto& [experts, active] : {std::pair{8, 1}, {8, 2}, {8, 8}, {37, 5}})
    for (const auto& [samples, sequence] : {std::pair{1, 1}, {3, 7}, {2, 130}, {1, 1500}})
      for (const std::int64_t limit : {1, 2, 40, 2000})
        expect_limited<TypeParam>({samples, sequence, experts, active}, 1, limit);
}

TYPED_TEST(ExpertCapacity, DoesNotDependOnTheDivisionOfSamples) {
  for (const int ranks : {2, 3, 4})
    for (const std::int64_t sequence : {4, 7, 130})
      for (const std::int64_t limit : {1, 3, 30})
        expect_limited<TypeParam>({3, sequence, 8, 2}, ranks, limit);
}

/// Samples whose last rows are padding, which choose no expert, beside the same samples without
/// them, each with the limit of its own tokens.
TYPED_TEST(ExpertCapacity, LeavesOutPadding) {
  using A = TypeParam;
  const std::int64_t sequence = 40, experts = 8, active = 2;
  const double capacity = 0.7;
  const Choices all(3, sequence, experts, active);
  std::vector<A> routes, scores(static_cast<std::size_t>(3 * sequence * experts), A(0.5));
  std::vector<std::int32_t> tokens;
  for (std::int64_t b = 0; b < 3; ++b)
    for (std::int64_t t = 0; t < sequence; ++t) {
      const std::int64_t own = sequence - 13 * b;
      tokens.push_back(static_cast<std::int32_t>(t < own ? own : 0));
      routes.insert(routes.end(), 2, A(0.25));
      for (std::int64_t j = 0; j < active; ++j)
        routes.push_back(static_cast<A>(all.chosen[all.at(b, t, j)]));
    }
  const DeviceArray<A> of_routes(routes), of_scores(scores), counts(3 * experts, A(-3));
  const DeviceArray<A> sums(3 * sequence, A(2));
  const DeviceArray<std::int32_t> of_tokens(tokens);
  const DeviceArray<double> dropped(1, 0.0);
  const auto matrix = of_routes.matrix(3 * sequence, 2 * active);
  const SampleChunks chunks{sequence, sequence};
  leave_out_padding<A>(Exec{}, matrix, of_scores.matrix(3 * sequence, experts), sums.flat(),
                       of_tokens.flat());
  count_chunks<A>(Exec{}, counts.matrix(3, experts), matrix, chunks);
  A counted = 0;
  for (const A n : counts.values()) counted += n;
  EXPECT_EQ(counted, static_cast<A>(active * (40 + 27 + 14)));
  drop_routes<A>(Exec{}, matrix, counts.matrix(3, experts), chunks, {capacity, of_tokens.flat()});
  count_dropped<A>(Exec{}, dropped.flat(), matrix);
  const std::vector<A> found = of_routes.values(), found_scores = of_scores.values();
  double count = 0;
  for (std::int64_t b = 0; b < 3; ++b) {
    const std::int64_t own = sequence - 13 * b;
    const auto limit = static_cast<std::int64_t>(
        std::ceil(capacity * static_cast<double>(own * active) / static_cast<double>(experts)));
    Choices alone(1, own, experts, active);
    std::copy_n(all.chosen.begin() + static_cast<std::ptrdiff_t>(all.at(b, 0, 0)), own * active,
                alone.chosen.begin());
    const std::vector<std::int64_t> expected = alone.limited(limit);
    for (std::int64_t t = 0; t < sequence; ++t) {
      const bool padding = t >= own;
      const std::int64_t row = b * sequence + t;
      EXPECT_EQ(found_scores[static_cast<std::size_t>(row * experts)], padding ? A(0) : A(0.5));
      EXPECT_EQ(sums.values()[static_cast<std::size_t>(row)], padding ? A(0) : A(2));
      for (std::int64_t j = 0; j < active; ++j) {
        const auto at = static_cast<std::size_t>(row * 2 * active + j);
        EXPECT_EQ(found[at], padding ? A(0) : A(0.25));
        const std::int64_t number = padding ? no_expert : expected[alone.at(0, t, j)];
        EXPECT_EQ(found[at + static_cast<std::size_t>(active)], static_cast<A>(number));
        count += !padding && number < 0 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(count, 0);
  EXPECT_EQ(dropped.values().front(), count);
}

TYPED_TEST(ExpertCapacity, RejectsWrongShapes) {
  using A = TypeParam;
  const DeviceArray<A> routes(24, A(0)), counts(8, A(0));
  const auto run = [&](std::int64_t rows, const SampleChunks& chunks) {
    count_chunks<A>(Exec{}, counts.matrix(rows, 2), routes.matrix(6, 4), chunks);
  };
  EXPECT_NO_THROW(run(2, {3, 3}));
  EXPECT_NO_THROW(run(4, {3, 2, 0, 1, 2}));
  EXPECT_THROW(run(3, {3, 3}), Error);
  EXPECT_THROW(run(2, {4, 4}), Error);
  EXPECT_THROW(run(2, {3, 4}), Error);
  EXPECT_THROW(run(4, {3, 2, 0, 2, 2}), Error);
}

}  // namespace
}  // namespace trireme::kernels
