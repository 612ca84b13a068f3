// The choice of experts and the rows along routes against plain loops in double. Matrices have gaps
// between their rows.
#include <trireme/kernels/experts.hpp>

#include <trireme/base/check.hpp>

#include <kernels/cases.hpp>
#include <reference/finite_difference.hpp>
#include <support/device_array.hpp>
#include <support/launch_recorder.hpp>
#include <support/numbers.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace trireme::kernels {
namespace {

using testing::at;
using testing::DeviceArray;
using testing::expect_close;
using testing::LaunchRecorder;
using testing::random_numbers;

constexpr std::int64_t row_gap = 3;

/// A matrix whose rows have row_gap more elements in memory. These hold 7.
template <class T>
class GappedMatrix {
 public:
  GappedMatrix(std::int64_t rows, std::int64_t columns, const std::vector<double>& values)
      : rows_(rows), columns_(columns), array_(rows * (columns + row_gap)) {
    std::vector<T> all(at(rows * (columns + row_gap)), T(7));
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c)
        all[at(r * (columns + row_gap) + c)] = static_cast<T>(values[at(r * columns + c)]);
    array_.assign(all);
  }
  GappedMatrix(std::int64_t rows, std::int64_t columns, double value = 7)
      : GappedMatrix(rows, columns, std::vector<double>(at(rows * columns), value)) {}

  View2<T> view() const {
    return first_columns(array_.matrix(rows_, columns_ + row_gap), columns_);
  }

  /// The matrix without gaps. Expects that the gaps are unchanged.
  std::vector<double> values() const {
    const std::vector<T> all = array_.values();
    std::vector<double> result;
    for (std::int64_t r = 0; r < rows_; ++r)
      for (std::int64_t c = 0; c < columns_ + row_gap; ++c) {
        const auto value = static_cast<double>(all[at(r * (columns_ + row_gap) + c)]);
        if (c < columns_)
          result.push_back(value);
        else
          EXPECT_EQ(value, 7) << "gap after row " << r;
      }
    return result;
  }

 private:
  std::int64_t rows_, columns_;
  DeviceArray<T> array_;
};

/// Softmax of the logits, the chosen experts of each row and their weights.
struct ChosenExperts {
  std::vector<double> probabilities, weights, numbers;
};

ChosenExperts reference_choice(const std::vector<double>& logits, std::int64_t experts,
                               const ExpertChoice& choice) {
  ChosenExperts result;
  for (auto row = logits.begin(); row != logits.end(); row += experts) {
    const double largest = *std::max_element(row, row + experts);
    double total = 0;
    for (std::int64_t i = 0; i < experts; ++i) total += std::exp(row[i] - largest);
    for (std::int64_t i = 0; i < experts; ++i)
      result.probabilities.push_back(std::exp(row[i] - largest) / total);
    std::vector<std::int64_t> ranking(at(experts));
    std::iota(ranking.begin(), ranking.end(), 0);
    std::stable_sort(ranking.begin(), ranking.end(),
                     [&](std::int64_t a, std::int64_t b) { return row[a] > row[b]; });
    ranking.resize(at(choice.active));
    std::sort(ranking.begin(), ranking.end());
    double sum = 0;
    for (const std::int64_t i : ranking) sum += std::exp(row[i] - largest);
    for (const std::int64_t i : ranking) {
      result.weights.push_back(std::exp(row[i] - largest) / (choice.normalised ? sum : total));
      result.numbers.push_back(static_cast<double>(i));
    }
  }
  return result;
}

/// Columns [first, first + count) of a matrix without gaps.
std::vector<double> columns_of(const std::vector<double>& all, std::int64_t columns,
                               std::int64_t first, std::int64_t count) {
  std::vector<double> result;
  for (std::int64_t r = 0; r * columns < static_cast<std::int64_t>(all.size()); ++r)
    for (std::int64_t c = first; c < first + count; ++c) result.push_back(all[at(r * columns + c)]);
  return result;
}

/// The results of choose_experts.
template <class A>
ChosenExperts choose(const std::vector<double>& logits, std::int64_t experts,
                     const ExpertChoice& choice) {
  const std::int64_t rows = static_cast<std::int64_t>(logits.size()) / experts;
  const std::int64_t k = choice.active;
  const GappedMatrix<A> scores(rows, experts, logits), routes(rows, 2 * k);
  choose_experts<A>(Exec{}, routes.view(), scores.view(), View1<const A>(), choice);
  const auto found = routes.values();
  return {scores.values(), columns_of(found, 2 * k, 0, k), columns_of(found, 2 * k, k, k)};
}

/// Numbers of active experts to test with E experts.
std::set<std::int64_t> some_active(std::int64_t experts) {
  return {1, std::min<std::int64_t>(2, experts), (experts + 1) / 2, experts};
}

template <class A>
class ExpertChoices : public ::testing::Test {};
TYPED_TEST_SUITE(ExpertChoices, WideTypes);

TYPED_TEST(ExpertChoices, MatchTheReference) {
  using A = TypeParam;
  constexpr double eps = std::numeric_limits<A>::epsilon();
  for (const std::int64_t rows : small_sizes)
    for (const std::int64_t experts : small_sizes)
      for (const std::int64_t k : some_active(experts))
        for (const bool normalised : {true, false})
          for (const bool ties : {true, false}) {
            auto logits = random_numbers<A>(rows * experts, 1, 4);
            if (ties)
              for (double& logit : logits) logit = std::round(logit);
            const auto found = choose<A>(logits, experts, {k, normalised});
            const auto expected = reference_choice(logits, experts, {k, normalised});
            ASSERT_EQ(found.numbers, expected.numbers) << experts << " experts, " << k << " active";
            // Relative errors: the rounding of a difference from the maximum, which is at most
            // twice the largest logit, in two exponentials; their own 1.1 roundings; E terms in a
            // sum; one quotient. Logits are too close for subnormal results.
            double largest = 0;
            for (const double logit : logits) largest = std::max(largest, std::abs(logit));
            const double relative = eps * (2 * largest + 4 + static_cast<double>(experts));
            const auto close = [&](const auto& values) {
              return [&, relative](std::size_t i) { return relative * values[i]; };
            };
            expect_close(found.weights, expected.weights, close(expected.weights));
            expect_close(found.probabilities, expected.probabilities,
                         close(expected.probabilities));
          }
}

TYPED_TEST(ExpertChoices, EqualLogitsChooseTheLowestNumbers) {
  using A = TypeParam;
  constexpr double eps = std::numeric_limits<A>::epsilon();
  for (const std::int64_t experts : small_sizes)
    for (const std::int64_t k : some_active(experts))
      for (const double logit : {0.0, -3.5, 1e4})
        for (const bool normalised : {true, false}) {
          const auto found =
              choose<A>(std::vector<double>(at(2 * experts), logit), experts, {k, normalised});
          std::vector<double> numbers;
          for (std::int64_t i = 0; i < 2 * k; ++i) numbers.push_back(static_cast<double>(i % k));
          EXPECT_EQ(found.numbers, numbers);
          const double weight = 1 / static_cast<double>(normalised ? k : experts);
          expect_close(found.weights, std::vector<double>(at(2 * k), weight),
                       [&](std::size_t) { return eps * weight; });
        }
}

TYPED_TEST(ExpertChoices, LargeLogitsDoNotOverflow) {
  using A = TypeParam;
  const auto found = choose<A>({3e4, -3e4, 2e4, 3e4}, 4, {2, false});
  EXPECT_EQ(found.numbers, (std::vector<double>{0, 3}));
  EXPECT_EQ(found.weights, (std::vector<double>{0.5, 0.5}));
  EXPECT_EQ(found.probabilities, (std::vector<double>{0.5, 0, 0, 0.5}));
}

TYPED_TEST(ExpertChoices, InvalidLogitsReachWeightsAndKeepNumbersValid) {
  using A = TypeParam;
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  constexpr double infinite = std::numeric_limits<double>::infinity();
  const std::vector<std::vector<double>> rows = {{1, 2, nan, 3},
                                                 {nan, nan, nan, nan},
                                                 {infinite, 1, 2, 3},
                                                 {-infinite, -infinite, -infinite, -infinite},
                                                 {nan, -infinite, infinite, 0}};
  const std::vector<std::vector<double>> numbers = {{2, 3}, {0, 1}, {0, 3}, {0, 1}, {0, 2}};
  for (std::size_t r = 0; r < rows.size(); ++r)
    for (const bool normalised : {true, false}) {
      const auto found = choose<A>(rows[r], 4, {2, normalised});
      EXPECT_EQ(found.numbers, numbers[r]) << r;
      EXPECT_TRUE(std::isnan(found.weights[0] + found.weights[1])) << r;
    }
}

TYPED_TEST(ExpertChoices, MaskedExpertsAreNotChosen) {
  using A = TypeParam;
  constexpr double masked = -std::numeric_limits<double>::infinity();
  const auto found = choose<A>({masked, 1, masked, 1}, 4, {2, true});
  EXPECT_EQ(found.numbers, (std::vector<double>{1, 3}));
  EXPECT_EQ(found.weights, (std::vector<double>{0.5, 0.5}));
  EXPECT_EQ(found.probabilities, (std::vector<double>{0, 0.5, 0, 0.5}));
}

/// The gradient with respect to the logits of Σ dw w, from choose_experts_backward.
template <class A>
std::vector<double> gradient_of_choice(const std::vector<double>& logits,
                                       const std::vector<double>& dweights, std::int64_t experts,
                                       const ExpertChoice& choice) {
  const std::int64_t rows = static_cast<std::int64_t>(logits.size()) / experts;
  const std::int64_t k = choice.active;
  const GappedMatrix<A> scores(rows, experts, logits), routes(rows, 2 * k), dlogits(rows, experts);
  std::vector<double> dvalues;  // NaN where nothing may be read
  for (std::int64_t r = 0; r < rows; ++r) {
    dvalues.insert(dvalues.end(), dweights.begin() + r * k, dweights.begin() + (r + 1) * k);
    dvalues.insert(dvalues.end(), at(k), std::numeric_limits<double>::quiet_NaN());
  }
  const GappedMatrix<A> droutes(rows, 2 * k, dvalues);
  choose_experts<A>(Exec{}, routes.view(), scores.view(), View1<const A>(), choice);
  choose_experts_backward<A>(Exec{}, dlogits.view(), droutes.view(), routes.view(), scores.view(),
                             choice);
  return dlogits.values();
}

TEST(ExpertChoiceGradient, MatchesFiniteDifferences) {
  for (const std::int64_t experts : small_sizes)
    for (const std::int64_t k : some_active(experts))
      for (const bool normalised : {true, false}) {
        constexpr std::int64_t rows = 2;
        const auto logits = random_numbers<double>(rows * experts, 1, 2);
        const auto dweights = random_numbers<double>(rows * k, 2);
        const auto numbers = reference_choice(logits, experts, {k, normalised}).numbers;
        const auto loss = [&](const std::vector<double>& l) {
          double result = 0;
          for (std::int64_t r = 0; r < rows; ++r) {
            const double* row = l.data() + r * experts;
            double chosen = 0, total = 0, weighted = 0;
            for (std::int64_t i = 0; i < experts; ++i) total += std::exp(row[i]);
            for (std::int64_t j = r * k; j < (r + 1) * k; ++j) {
              const double e = std::exp(row[static_cast<std::int64_t>(numbers[at(j)])]);
              chosen += e;
              weighted += dweights[at(j)] * e;
            }
            result += weighted / (normalised ? chosen : total);
          }
          return result;
        };
        // A weight depends on one logit as a logistic function, whose third derivative is at most
        // 1/8. The loss has relative roundings of E + k terms and of exponentials.
        double size = 0;
        for (const double dw : dweights) size += std::abs(dw);
        const double h = reference::difference_step;
        const double bound = h * h / 6 * size / 8 + 2 * std::numeric_limits<double>::epsilon() / h *
                                                        size * static_cast<double>(experts + k + 4);
        ASSERT_LT(bound, 1e-5);  // otherwise the comparison would mean nothing
        expect_close(gradient_of_choice<double>(logits, dweights, experts, {k, normalised}),
                     reference::finite_difference(loss, logits),
                     [&](std::size_t) { return bound; });
      }
}

/// The choice by scores with a bias, by sorting.
struct ScoredChoice {
  std::vector<double> scores;
  std::vector<std::size_t> numbers;  ///< ascending

  ScoredChoice(const double* logits, std::size_t experts, const std::vector<double>& bias,
               const ExpertChoice& choice) {
    double total = 0;
    for (std::size_t i = 0; i < experts; ++i) total += std::exp(logits[i]);
    for (std::size_t i = 0; i < experts; ++i)
      scores.push_back(choice.sigmoid ? 1 / (1 + std::exp(-logits[i]))
                                      : std::exp(logits[i]) / total);
    const auto key = [&](std::size_t i) { return scores[i] + (bias.empty() ? 0 : bias[i]); };
    const std::size_t each = experts / at(choice.groups);
    std::vector<std::pair<double, std::size_t>> groups,
        kept;  // negative, so that ties are in order
    for (std::size_t g = 0; g < at(choice.groups); ++g) {
      std::vector<double> keys;
      for (std::size_t i = g * each; i < (g + 1) * each; ++i) keys.push_back(key(i));
      std::sort(keys.rbegin(), keys.rend());
      groups.emplace_back(-keys[0] - (each > 1 ? keys[1] : 0), g);
    }
    std::sort(groups.begin(), groups.end());
    for (std::size_t n = 0; n < at(choice.active_groups); ++n)
      for (std::size_t i = groups[n].second * each; i < (groups[n].second + 1) * each; ++i)
        kept.emplace_back(-key(i), i);
    std::sort(kept.begin(), kept.end());
    for (std::size_t j = 0; j < at(choice.active); ++j) numbers.push_back(kept[j].second);
    std::sort(numbers.begin(), numbers.end());
  }

  /// Weights of the numbers.
  std::vector<double> weights(const ExpertChoice& choice) const {
    double sum = 0;
    for (const std::size_t i : numbers) sum += scores[i];
    std::vector<double> result;
    for (const std::size_t i : numbers)
      result.push_back(choice.scale * scores[i] / (choice.normalised ? sum : 1));
    return result;
  }
};

/// (sigmoid, normalised, groups, active groups, bias)
constexpr std::tuple<bool, bool, std::int64_t, std::int64_t, bool> scored_choices[] = {
    {true, true, 1, 1, false},
    {true, false, 1, 1, true},
    {true, true, 4, 2, true},
    {false, true, 4, 3, true},
    {false, false, 6, 2, false}};

TYPED_TEST(ExpertChoices, ByScoresMatchASort) {
  using A = TypeParam;
  constexpr std::int64_t rows = 40, experts = 24, k = 3;
  for (const auto& [sigmoid, normalised, groups, active_groups, biased] : scored_choices)
    for (const bool ties : {false, true}) {
      const ExpertChoice choice{k, normalised, sigmoid, 2.5, groups, active_groups};
      auto logits = random_numbers<A>(rows * experts, 1, 2);
      if (ties)
        for (double& logit : logits) logit = std::round(logit);
      std::vector<double> bias;
      if (biased) bias = random_numbers<A>(experts, 2, 0.2);
      const GappedMatrix<A> scores(rows, experts, logits), routes(rows, 2 * k);
      const DeviceArray<A> d_bias(std::vector<A>(bias.begin(), bias.end()));
      choose_experts<A>(Exec{}, routes.view(), scores.view(),
                        biased ? View1<const A>(d_bias.flat()) : View1<const A>(), choice);
      const auto found = routes.values();
      for (std::int64_t r = 0; r < rows; ++r) {
        const ScoredChoice expected(logits.data() + r * experts, at(experts), bias, choice);
        const auto weights = expected.weights(choice);
        for (std::size_t j = 0; j < at(k); ++j) {
          ASSERT_EQ(found[at(r * 2 * k + k) + j], static_cast<double>(expected.numbers[j]))
              << groups << " groups, row " << r;
          ASSERT_NEAR(found[at(r * 2 * k) + j], weights[j],
                      100 * std::numeric_limits<A>::epsilon() * weights[j]);
        }
      }
    }
}

TEST(ExpertChoiceGradient, ByScoresMatchesFiniteDifferences) {
  constexpr std::int64_t experts = 24, k = 3;
  for (const auto& [sigmoid, normalised, groups, active_groups, biased] : scored_choices) {
    const ExpertChoice choice{k, normalised, sigmoid, 2.5, groups, active_groups};
    const auto logits = random_numbers<double>(experts, 3, 2);
    const auto dweights = random_numbers<double>(k, 2);
    const ScoredChoice chosen(logits.data(), at(experts), {}, choice);
    const auto loss = [&](const std::vector<double>& l) {
      ScoredChoice at_l(l.data(), at(experts), {}, choice);
      at_l.numbers = chosen.numbers;
      return reference::dot(at_l.weights(choice), dweights);
    };
    expect_close(gradient_of_choice<double>(logits, dweights, experts, choice),
                 reference::finite_difference(loss, logits), [](std::size_t) { return 1e-8; });
  }
}

TEST(ExpertChoiceGradient, SinglePrecisionMatchesDoublePrecision) {
  const std::int64_t experts = 13, k = 4;
  const auto logits = random_numbers<float>(8 * experts, 1, 2);
  const auto dweights = random_numbers<float>(8 * k, 2);
  double largest = 0, steepest = 0;
  for (const double logit : logits) largest = std::max(largest, std::abs(logit));
  for (const double dw : dweights) steepest = std::max(steepest, std::abs(dw));
  // Weights as in MatchTheReference, in terms that are at most 2 max |dw|; k terms and 3 roundings.
  const double bound = 2 * steepest * std::numeric_limits<float>::epsilon() *
                       (2 * (2 * largest + 4 + static_cast<double>(experts)) + k + 3);
  for (const bool normalised : {true, false})
    expect_close(gradient_of_choice<float>(logits, dweights, experts, {k, normalised}),
                 gradient_of_choice<double>(logits, dweights, experts, {k, normalised}),
                 [&](std::size_t) { return bound; });
}

TYPED_TEST(ExpertChoices, RejectWrongShapes) {
  using A = TypeParam;
  const GappedMatrix<A> scores(3, 4), routes(3, 4);
  const auto run = [&](const GappedMatrix<A>& r, std::int64_t active) {
    choose_experts<A>(Exec{}, r.view(), scores.view(), View1<const A>(), {active, true});
  };
  EXPECT_NO_THROW(run(routes, 2));
  EXPECT_THROW(run(routes, 1), Error);
  EXPECT_THROW(run(GappedMatrix<A>(3, 0), 0), Error);
  EXPECT_THROW(run(GappedMatrix<A>(3, 10), 5), Error);
  EXPECT_THROW(run(GappedMatrix<A>(2, 4), 2), Error);
  const auto grouped = [&](std::int64_t groups, std::int64_t active_groups) {
    choose_experts<A>(Exec{}, routes.view(), scores.view(), View1<const A>(),
                      {2, true, true, 1, groups, active_groups});
  };
  EXPECT_NO_THROW(grouped(2, 1));
  EXPECT_THROW(grouped(3, 1), Error);
  EXPECT_THROW(grouped(2, 3), Error);
  EXPECT_THROW(grouped(4, 1), Error);
  const DeviceArray<A> three(3);
  EXPECT_THROW(choose_experts<A>(Exec{}, routes.view(), scores.view(), View1<const A>(three.flat()),
                                 {2, true}),
               Error);
}

/// routes [T, 2k] of these numbers [T, k]. The weights are 1, 2, …
std::vector<double> routes_to(const std::vector<double>& numbers, std::int64_t k) {
  std::vector<double> routes;
  for (std::int64_t t = 0; t * k < static_cast<std::int64_t>(numbers.size()); ++t) {
    for (std::int64_t j = 0; j < k; ++j) routes.push_back(static_cast<double>(t * k + j + 1));
    routes.insert(routes.end(), numbers.begin() + t * k, numbers.begin() + (t + 1) * k);
  }
  return routes;
}

/// The order of routes and the bounds of held experts by a loop over experts and routes.
struct RoutesInOrder {
  std::vector<std::int32_t> order, bounds;
};

RoutesInOrder reference_order(const std::vector<double>& numbers, const layout::Slice& held) {
  RoutesInOrder result;
  for (std::int64_t e = held.offset; e < held.end(); ++e) {
    result.bounds.push_back(static_cast<std::int32_t>(result.order.size()));
    for (std::size_t route = 0; route < numbers.size(); ++route)
      if (numbers[route] == static_cast<double>(e))
        result.order.push_back(static_cast<std::int32_t>(route));
  }
  result.bounds.push_back(static_cast<std::int32_t>(result.order.size()));
  return result;
}

/// k different ascending numbers per token, of those experts for which `wanted` is true.
template <class Wanted>
std::vector<double> random_choices(std::int64_t tokens, std::int64_t k, std::int64_t experts,
                                   const Wanted& wanted) {
  std::vector<double> all, result;
  for (std::int64_t e = 0; e < experts; ++e)
    if (wanted(e)) all.push_back(static_cast<double>(e));
  std::mt19937 generator(3);
  for (std::int64_t t = 0; t < tokens; ++t)
    std::sample(all.begin(), all.end(), std::back_inserter(result), k, generator);
  return result;
}

template <class A>
void expect_order(const std::vector<double>& numbers, std::int64_t k, const layout::Slice& held) {
  const std::int64_t tokens = static_cast<std::int64_t>(numbers.size()) / k;
  const GappedMatrix<A> routes(tokens, 2 * k, routes_to(numbers, k));
  const std::int64_t most = tokens * std::min(k, held.extent);
  const DeviceArray<std::int32_t> order(most + 2, -7), bounds(held.extent + 1, -7);
  order_routes<A>(Exec{}, order.flat(), bounds.flat(), routes.view(), held);
  auto expected = reference_order(numbers, held);
  EXPECT_EQ(bounds.values(), expected.bounds);
  expected.order.resize(at(most + 2), -7);  // the rest is unchanged
  EXPECT_EQ(order.values(), expected.order);
}

template <class A>
class RouteOrders : public ::testing::Test {};
TYPED_TEST_SUITE(RouteOrders, WideTypes);

TYPED_TEST(RouteOrders, SortByExpertAndThenByToken) {
  for (const std::int64_t tokens : {1, 13, 128, 1500})
    for (const std::int64_t experts : {1, 8, 37})
      for (const std::int64_t k : {1, 2, 8}) {
        if (k > experts) continue;
        const auto numbers = random_choices(tokens, k, experts, [](std::int64_t) { return true; });
        expect_order<TypeParam>(numbers, k, {0, experts});
      }
}

TYPED_TEST(RouteOrders, LeaveOutExpertsOfOtherRanks) {
  const auto numbers = random_choices(300, 3, 12, [](std::int64_t) { return true; });
  for (const layout::Slice held :
       {layout::Slice{0, 4}, layout::Slice{4, 4}, layout::Slice{8, 4}, layout::Slice{5, 1}})
    expect_order<TypeParam>(numbers, 3, held);
}

TYPED_TEST(RouteOrders, GiveExpertsWithoutTokensEmptyRanges) {
  const auto numbers = random_choices(100, 2, 12, [](std::int64_t e) { return e % 3 == 1; });
  for (const layout::Slice held : {layout::Slice{0, 12}, layout::Slice{3, 6}, layout::Slice{2, 2}})
    expect_order<TypeParam>(numbers, 2, held);
  expect_order<TypeParam>(numbers, 2, {5, 2});  // no tokens at all
}

TYPED_TEST(RouteOrders, GiveOneExpertEveryToken) {
  const std::vector<double> numbers(1000, 5);
  for (const layout::Slice held : {layout::Slice{0, 8}, layout::Slice{5, 1}, layout::Slice{6, 2}})
    expect_order<TypeParam>(numbers, 1, held);
}

TYPED_TEST(RouteOrders, AcceptNoTokensAndNoExperts) {
  expect_order<TypeParam>({}, 2, {0, 4});
  expect_order<TypeParam>({0, 1, 0, 2}, 2, {1, 0});
}

TYPED_TEST(RouteOrders, RejectWrongShapes) {
  using A = TypeParam;
  const GappedMatrix<A> routes(3, 4, routes_to({0, 1, 0, 1, 0, 1}, 2)), odd(3, 5);
  const auto run = [](std::int64_t size, std::int64_t bounds, const GappedMatrix<A>& of,
                      const layout::Slice& held) {
    const DeviceArray<std::int32_t> order(size), begins(bounds);
    order_routes<A>(Exec{}, order.flat(), begins.flat(), of.view(), held);
  };
  EXPECT_NO_THROW(run(6, 5, routes, {0, 4}));
  EXPECT_NO_THROW(run(3, 2, routes, {1, 1}));
  EXPECT_THROW(run(5, 5, routes, {0, 4}), Error);
  EXPECT_THROW(run(6, 4, routes, {0, 4}), Error);
  EXPECT_THROW(run(6, 5, routes, {-1, 4}), Error);
  EXPECT_THROW(run(6, 5, odd, {0, 4}), Error);
}

/// Largest relative error of rounding a normal number to T.
template <class T>
constexpr double storage_rounding = std::numeric_limits<T>::epsilon() / 2.0;
template <>
constexpr double storage_rounding<Bf16> = 1.0 / 256;
template <>
constexpr double storage_rounding<Fp16> = 1.0 / 2048;
/// Largest error of rounding a subnormal Fp16; the other types' are smaller.
constexpr double subnormal_rounding = 1.0 / (1 << 25);

/// Thirteen tokens choose two of five experts; the routes to expert 3 are of interest.
template <class T>
struct RoutedCase {
  using Acc = Accumulate<T>;
  static constexpr std::int64_t tokens = 13, k = 2;

  std::vector<double> numbers = random_choices(tokens, k, 5, [](std::int64_t) { return true; });
  std::vector<std::int32_t> routes_of_expert = reference_order(numbers, {3, 1}).order;
  std::int64_t n = static_cast<std::int64_t>(routes_of_expert.size());
  DeviceArray<std::int32_t> order{routes_of_expert};
  std::vector<double> weights = random_numbers<Acc>(tokens * 2 * k, 4);
  GappedMatrix<Acc> routes{tokens, 2 * k, weights};

  std::int64_t token(std::int64_t i) const { return routes_of_expert[at(i)] / k; }
  /// Place of the weight of route order[i] in routes [T, 2k].
  std::size_t place(std::int64_t i) const {
    return at(token(i) * 2 * k + routes_of_expert[at(i)] % k);
  }
};

template <class T>
class RoutedRows : public ::testing::Test {};
TYPED_TEST_SUITE(RoutedRows, AllTypes);

TYPED_TEST(RoutedRows, ArePickedExactly) {
  using T = TypeParam;
  const RoutedCase<T> c;
  ASSERT_GT(c.n, 2);
  ASSERT_LT(c.n, c.tokens);
  for (const std::int64_t columns : small_sizes) {
    const auto values = random_numbers<T>(c.tokens * columns, 1);
    const GappedMatrix<T> rows(c.tokens, columns, values), picked(c.n, columns);
    pick_routed<T>(Exec{}, picked.view(), rows.view(), c.order.flat(), c.k);
    std::vector<double> expected;
    for (std::int64_t i = 0; i < c.n; ++i)
      for (std::int64_t d = 0; d < columns; ++d)
        expected.push_back(values[at(c.token(i) * columns + d)]);
    EXPECT_EQ(picked.values(), expected);
  }
}

TYPED_TEST(RoutedRows, AreAddedToTheirTokens) {
  using T = TypeParam;
  using Acc = Accumulate<T>;
  const RoutedCase<T> c;
  for (const std::int64_t columns : small_sizes) {
    const auto before = random_numbers<Acc>(c.tokens * columns, 1);
    const auto values = random_numbers<T>(c.n * columns, 2);
    const GappedMatrix<Acc> sums(c.tokens, columns, before);
    const GappedMatrix<T> rows(c.n, columns, values);
    add_routed<T>(Exec{}, sums.view(), rows.view(), c.order.flat(), c.k);
    auto expected = before;
    for (std::int64_t i = 0; i < c.n; ++i)
      for (std::int64_t d = 0; d < columns; ++d)
        expected[at(c.token(i) * columns + d)] += values[at(i * columns + d)];
    // One rounding of a sum; rows of other tokens are unchanged.
    expect_close(sums.values(), expected, [&](std::size_t i) {
      return expected[i] == before[i] ? 0 : storage_rounding<Acc> * std::abs(expected[i]);
    });
  }
}

TYPED_TEST(RoutedRows, AreWeighed) {
  using T = TypeParam;
  const RoutedCase<T> c;
  for (const std::int64_t columns : small_sizes) {
    auto expected = random_numbers<T>(c.n * columns, 1);
    const GappedMatrix<T> rows(c.n, columns, expected);
    weigh_routed<T>(Exec{}, rows.view(), c.routes.view(), c.order.flat());
    for (std::int64_t i = 0; i < c.n; ++i)
      for (std::int64_t d = 0; d < columns; ++d)
        expected[at(i * columns + d)] *= c.weights[c.place(i)];
    // The roundings of a product in Accumulate<T> and of its storage.
    expect_close(rows.values(), expected, [&](std::size_t i) {
      return (storage_rounding<T> + 1.01 * storage_rounding<Accumulate<T>>)*std::abs(expected[i]) +
             subnormal_rounding * (sizeof(T) == 2 ? 1 : 0);
    });
  }
}

TYPED_TEST(RoutedRows, GiveGradientsOfWeights) {
  using T = TypeParam;
  using Acc = Accumulate<T>;
  const RoutedCase<T> c;
  for (const std::int64_t columns : small_sizes) {
    const auto a = random_numbers<T>(c.n * columns, 1), b = random_numbers<T>(c.n * columns, 2);
    const GappedMatrix<T> left(c.n, columns, a), right(c.n, columns, b);
    const GappedMatrix<Acc> droutes(c.tokens, 2 * c.k, c.weights);
    dot_routed<T>(Exec{}, droutes.view(), left.view(), right.view(), c.order.flat());
    auto expected = c.weights;  // of other routes and of numbers: unchanged
    std::vector<double> bound(expected.size());
    for (std::int64_t i = 0; i < c.n; ++i) {
      double sum = 0, size = 0;
      for (std::int64_t f = i * columns; f < (i + 1) * columns; ++f) {
        sum += a[at(f)] * b[at(f)];
        size += std::abs(a[at(f)] * b[at(f)]);
      }
      // F products and F sums, in any order.
      bound[c.place(i)] = 1.01 * storage_rounding<Acc> * static_cast<double>(columns + 1) *
                          (size + std::abs(expected[c.place(i)]));
      expected[c.place(i)] += sum;
    }
    expect_close(droutes.values(), expected, [&](std::size_t i) { return bound[i]; });
  }
}

TYPED_TEST(RoutedRows, GetTheBiasTimesTheirWeights) {
  using T = TypeParam;
  using Acc = Accumulate<T>;
  const RoutedCase<T> c;
  for (const std::int64_t columns : small_sizes) {
    const auto values = random_numbers<T>(c.n * columns, 1), b = random_numbers<T>(columns, 2);
    const GappedMatrix<T> rows(c.n, columns, values), slopes(c.n, columns, values);
    const DeviceArray<T> bias(b);
    const GappedMatrix<Acc> droutes(c.tokens, 2 * c.k, c.weights);
    add_weighed_bias<T>(Exec{}, rows.view(), bias.flat(), c.routes.view(), c.order.flat());
    dot_bias<T>(Exec{}, droutes.view(), slopes.view(), bias.flat(), c.order.flat());
    std::vector<double> expected = values, of_routes = c.weights;
    std::vector<double> size(values.size()), bound(of_routes.size());
    for (std::int64_t i = 0; i < c.n; ++i)
      for (std::int64_t d = 0; d < columns; ++d) {
        const double added = c.weights[c.place(i)] * b[at(d)];
        expected[at(i * columns + d)] += added;
        size[at(i * columns + d)] = std::abs(added) + std::abs(values[at(i * columns + d)]);
        of_routes[c.place(i)] += values[at(i * columns + d)] * b[at(d)];
        bound[c.place(i)] += std::abs(values[at(i * columns + d)] * b[at(d)]);
      }
    expect_close(rows.values(), expected, [&](std::size_t i) {
      return (storage_rounding<T> + 2.01 * storage_rounding<Acc>)*size[i];
    });
    expect_close(droutes.values(), of_routes, [&](std::size_t i) {
      return bound[i] == 0 ? 0
                           : 1.01 * storage_rounding<Acc> * static_cast<double>(columns + 1) *
                                 (bound[i] + std::abs(c.weights[i]));
    });
  }
}

TYPED_TEST(RoutedRows, SumsAreRoundedToNearest) {
  using T = TypeParam;
  for (const std::int64_t columns : small_sizes) {
    const auto values = random_numbers<Accumulate<T>>(5 * columns, 1);
    const GappedMatrix<Accumulate<T>> sums(5, columns, values);
    const GappedMatrix<T> y(5, columns);
    round_sums<T>(Exec{}, y.view(), sums.view());
    std::vector<double> expected;
    for (const double v : values) expected.push_back(static_cast<double>(static_cast<T>(v)));
    EXPECT_EQ(y.values(), expected);
  }
}

TYPED_TEST(RoutedRows, AreGatedBySigmoids) {
  using T = TypeParam;
  using Acc = Accumulate<T>;
  constexpr double stored = storage_rounding<T>, summed = storage_rounding<Acc>;
  constexpr double least = sizeof(T) == 2 ? subnormal_rounding : 0;
  const std::vector<double> logits{0, 20, -2, -20};
  const DeviceArray<Acc> factors(std::vector<Acc>(logits.begin(), logits.end()));
  for (const std::int64_t columns : small_sizes) {
    const auto values = random_numbers<T>(4 * columns, 1);
    const auto slopes = random_numbers<T>(4 * columns, 2);
    const GappedMatrix<T> y(4, columns, values), raw(4, columns), dy(4, columns, slopes);
    const DeviceArray<T> dlogits(4);
    gate_rows<T>(Exec{}, y.view(), raw.view(), factors.flat());
    gate_rows_backward<T>(Exec{}, dy.view(), dlogits.flat(), raw.view(), factors.flat());
    EXPECT_EQ(raw.values(), values);
    std::vector<double> gated, of_values, of_logits, bounds;
    for (std::size_t r = 0; r < 4; ++r) {
      const double s = 1 / (1 + std::exp(-logits[r])), rest = 1 / (1 + std::exp(logits[r]));
      double sum = 0, size = 0;
      for (std::size_t i = r * at(columns); i < (r + 1) * at(columns); ++i) {
        gated.push_back(s * values[i]);
        of_values.push_back(s * slopes[i]);
        sum += values[i] * slopes[i];
        size += std::abs(values[i] * slopes[i]);
      }
      of_logits.push_back(s * rest * sum);
      // F products and F − 1 sums, two sigmoids, their product, and the storage.
      const double steps = 1.01 * static_cast<double>(columns + 16);
      bounds.push_back(s * rest * size * (summed * steps + stored) + least);
    }
    const auto close = [&](const std::vector<double>& expected) {
      return [&](std::size_t i) { return std::abs(expected[i]) * (stored + 16 * summed) + least; };
    };
    expect_close(y.values(), gated, close(gated));
    expect_close(dy.values(), of_values, close(of_values));
    const std::vector<T> found = dlogits.values();
    expect_close(std::vector<double>(found.begin(), found.end()), of_logits,
                 [&](std::size_t i) { return bounds[i]; });
  }
}

TYPED_TEST(RoutedRows, LaunchNothingWithoutRoutes) {
  using T = TypeParam;
  using Acc = Accumulate<T>;
  const GappedMatrix<T> rows(3, 5), none(0, 5);
  const GappedMatrix<Acc> routes(3, 4), sums(3, 5);
  const DeviceArray<std::int32_t> order(0);
  const LaunchRecorder recorder;
  pick_routed<T>(Exec{}, none.view(), rows.view(), order.flat(), 2);
  add_routed<T>(Exec{}, sums.view(), none.view(), order.flat(), 2);
  weigh_routed<T>(Exec{}, none.view(), routes.view(), order.flat());
  dot_routed<T>(Exec{}, routes.view(), none.view(), none.view(), order.flat());
  EXPECT_TRUE(recorder.labels().empty());
  EXPECT_EQ(rows.values(), std::vector<double>(15, 7));
  EXPECT_EQ(sums.values(), std::vector<double>(15, 7));
  EXPECT_EQ(routes.values(), std::vector<double>(12, 7));
}

TYPED_TEST(RoutedRows, RejectWrongShapes) {
  using T = TypeParam;
  using Acc = Accumulate<T>;
  const GappedMatrix<T> tokens(3, 5), two(2, 5), one(1, 5), narrow(2, 4);
  const GappedMatrix<Acc> sums(3, 5), odd(3, 3), routes(3, 4);
  const DeviceArray<std::int32_t> order(std::vector<std::int32_t>{1, 4});
  const Exec exec;
  const auto list = order.flat();
  for (const auto* wrong : {&one, &narrow}) {
    EXPECT_THROW(pick_routed<T>(exec, wrong->view(), tokens.view(), list, 2), Error);
    EXPECT_THROW(add_routed<T>(exec, sums.view(), wrong->view(), list, 2), Error);
    EXPECT_THROW(dot_routed<T>(exec, routes.view(), two.view(), wrong->view(), list), Error);
  }
  EXPECT_THROW(pick_routed<T>(exec, two.view(), tokens.view(), list, 0), Error);
  EXPECT_THROW(add_routed<T>(exec, sums.view(), two.view(), list, 0), Error);
  EXPECT_THROW(weigh_routed<T>(exec, one.view(), routes.view(), list), Error);
  EXPECT_THROW(weigh_routed<T>(exec, two.view(), odd.view(), list), Error);
  EXPECT_THROW(round_sums<T>(exec, two.view(), sums.view()), Error);
}

}  // namespace
}  // namespace trireme::kernels
