#include <trireme/kernels/expert_copies.hpp>

#include <trireme/base/check.hpp>
#include <trireme/layout/split.hpp>

#include "support/device_array.hpp"

#include "kernels/cases.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace trireme::kernels {
namespace {

using trireme::testing::DeviceArray;

/// Experts of each token: `active` different ascending numbers of those below `experts`.
std::vector<std::vector<std::int64_t>> random_choices(std::int64_t tokens, std::int64_t active,
                                                      std::int64_t experts) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(experts));
  for (std::size_t e = 0; e < all.size(); ++e) all[e] = static_cast<std::int64_t>(e);
  std::mt19937 generator(5);
  std::vector<std::vector<std::int64_t>> choices(static_cast<std::size_t>(tokens));
  for (auto& of_token : choices)
    std::sample(all.begin(), all.end(), std::back_inserter(of_token), active, generator);
  return choices;
}

template <class A>
void expect_copies(const std::vector<std::vector<std::int64_t>>& choices, std::int64_t active,
                   const ExpertParts& parts) {
  SCOPED_TRACE(text(choices.size(), " tokens, ", active, " of ", parts.experts, " experts, ",
                    parts.replicas, " replicas, tensor rank ", parts.tensor_rank, " of ",
                    parts.tensor_ranks));
  const auto tokens = static_cast<std::int64_t>(choices.size());
  std::vector<A> routes;
  for (const auto& of_token : choices) {
    routes.insert(routes.end(), static_cast<std::size_t>(active), A(0.5));
    for (const std::int64_t e : of_token) routes.push_back(static_cast<A>(e));
  }
  std::vector<std::int32_t> order, bounds{0};
  for (std::int64_t replica = 0; replica < parts.replicas; ++replica) {
    const layout::Slice held = layout::split(parts.experts, parts.replicas * parts.tensor_ranks,
                                             replica * parts.tensor_ranks + parts.tensor_rank);
    for (std::size_t t = 0; t < choices.size(); ++t)
      if (std::ranges::any_of(choices[t],
                              [&](std::int64_t e) { return e >= held.offset && e < held.end(); }))
        order.push_back(static_cast<std::int32_t>(t));
    bounds.push_back(static_cast<std::int32_t>(order.size()));
  }
  const std::int64_t most = tokens * std::min(active, parts.replicas);
  const DeviceArray<A> of_routes(routes);
  const DeviceArray<std::int32_t> found(most + 2, -7), found_bounds(parts.replicas + 1, -7);
  list_copies<A>(Exec{}, found.flat(), found_bounds.flat(), of_routes.matrix(tokens, 2 * active),
                 parts);
  EXPECT_EQ(found_bounds.values(), bounds);
  order.resize(static_cast<std::size_t>(most) + 2, -7);  // the rest is unchanged
  EXPECT_EQ(found.values(), order);
}

template <class A>
class ExpertCopies : public ::testing::Test {};
TYPED_TEST_SUITE(ExpertCopies, WideTypes);

TYPED_TEST(ExpertCopies, ListEachTokenOncePerReplicaWithAnExpert) {
  for (const std::int64_t tokens : {1, 13, 128, 1500})
    for (const auto& [experts, active] : {std::pair{8, 1}, {8, 2}, {8, 8}, {37, 8}, {64, 6}})
      for (const auto& [replicas, ranks] :
           {std::pair{1, 1}, {2, 1}, {4, 2}, {3, 2}, {8, 1}, {5, 1}})
        for (std::int64_t rank = 0; rank < ranks; ++rank)
          expect_copies<TypeParam>(random_choices(tokens, active, experts), active,
                                   {experts, replicas, ranks, rank});
}

TYPED_TEST(ExpertCopies, LeaveReplicasWithoutTokensEmpty) {
  for (const std::int64_t rank : {0, 1})
    expect_copies<TypeParam>(std::vector(100, std::vector<std::int64_t>{4, 5}), 2,
                             {12, 3, 2, rank});
  expect_copies<TypeParam>({}, 2, {12, 3, 2, 0});
}

TYPED_TEST(ExpertCopies, RejectWrongShapes) {
  using A = TypeParam;
  const DeviceArray<A> routes(12, A(0));
  const auto run = [&](std::int64_t size, std::int64_t bounds, const ExpertParts& parts) {
    const DeviceArray<std::int32_t> order(size), of(bounds);
    list_copies<A>(Exec{}, order.flat(), of.flat(), routes.matrix(3, 4), parts);
  };
  EXPECT_NO_THROW(run(6, 3, {4, 2, 1, 0}));
  EXPECT_THROW(run(5, 3, {4, 2, 1, 0}), Error);
  EXPECT_THROW(run(6, 2, {4, 2, 1, 0}), Error);
  EXPECT_THROW(run(6, 3, {4, 2, 1, 1}), Error);
  EXPECT_THROW(run(6, 3, {3, 2, 2, 0}), Error);  // a rank without experts
}

}  // namespace
}  // namespace trireme::kernels
