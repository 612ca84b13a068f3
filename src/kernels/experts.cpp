// Mixture of experts: the choice of experts and its gradient, the list of routes per expert, and
// the rows that travel along the routes.
#include <trireme/kernels/experts.hpp>

#include <trireme/base/check.hpp>
#include <trireme/kernels/packs.hpp>
#include <trireme/tensor/expect.hpp>
#include <trireme/tensor/fence.hpp>

#include <algorithm>
#include <limits>
#include <type_traits>

namespace trireme::kernels {
namespace {

/// A logit in the order of choice, in which a NaN counts as +∞.
template <class A>
KOKKOS_FORCEINLINE_FUNCTION A ranked(A logit) {
  return logit < infinity<A> ? logit : infinity<A>;
}

/// A row's choice: all experts above the lowest chosen key, and of the experts with that key the
/// first `equal` ones.
template <class A>
struct ChoiceLimit {
  A largest, lowest;
  std::int64_t equal;
};

/// Descends through the different keys of a row until `active` experts are chosen. `key`: function
/// of an expert.
template <class A, class Key>
KOKKOS_FORCEINLINE_FUNCTION ChoiceLimit<A> choice_limit(const Team& team, const Key& key,
                                                        std::int64_t experts, std::int64_t active) {
  const A largest = max_lanes<A>(team, experts, key);
  ChoiceLimit<A> limit{largest, largest, active};
  while (true) {
    const A lowest = limit.lowest;
    const int found =
        sum_lanes<int>(team, experts, [&](std::int64_t i) { return key(i) == lowest ? 1 : 0; });
    if (found >= limit.equal) return limit;
    limit.equal -= found;
    limit.lowest = max_lanes<A>(team, experts, [&](std::int64_t i) {
      const A one = key(i);
      return one < lowest ? one : -infinity<A>;
    });
  }
}

/// Lists the chosen experts in ascending order. Without branches, which would be mispredicted.
template <class A, class Key>
KOKKOS_FORCEINLINE_FUNCTION void list_choice(A* numbers, const Key& key, std::int64_t active,
                                             const ChoiceLimit<A>& limit) {
  std::int64_t chosen = 0, equal = limit.equal;
  for (std::int64_t i = 0; chosen < active; ++i) {
    const A one = key(i);
    const bool at_limit = one == limit.lowest;
    numbers[chosen] = static_cast<A>(i);  // overwritten unless expert i is chosen
    chosen += (one > limit.lowest) | (at_limit & (equal > 0));
    equal -= at_limit;
  }
}

/// Bits of the `active` groups with the largest sums of their two largest keys; of equal sums, the
/// lower group wins.
template <class A, class Key>
KOKKOS_INLINE_FUNCTION std::uint64_t chosen_groups(const Key& key, std::int64_t experts,
                                                   std::int64_t groups, std::int64_t active) {
  A sums[ExpertChoice::most_groups];
  const std::int64_t each = experts / groups;
  for (std::int64_t g = 0; g < groups; ++g) {
    A first = -infinity<A>, second = -infinity<A>;
    for (std::int64_t i = g * each; i < (g + 1) * each; ++i) {
      const A one = key(i);
      second = one > first ? first : one > second ? one : second;
      first = one > first ? one : first;
    }
    sums[g] = first + second;
  }
  std::uint64_t chosen = 0;
  for (std::int64_t g = 0; g < groups; ++g) {
    std::int64_t before = 0;
    for (std::int64_t other = 0; other < groups; ++other)
      before += sums[other] > sums[g] || (sums[other] == sums[g] && other < g);
    if (before < active) chosen |= std::uint64_t{1} << g;
  }
  return chosen;
}

/// Accurate also for large |x|: the exponent is never positive.
template <class A>
KOKKOS_INLINE_FUNCTION A sigmoid(A x) {
  const A e = exp_of_difference(x >= 0 ? -x : x);
  return x >= 0 ? 1 / (1 + e) : e / (1 + e);
}

/// Smallest sum of scores that weights are divided by, against a division by zero.
constexpr double least_sum = 1e-20;

void expect_choice(const ExpertChoice& choice, std::int64_t experts) {
  check(choice.active >= 1 && choice.active <= experts, choice.active, " active of ", experts,
        " experts, expected 1 to ", experts);
  const std::int64_t groups = choice.groups;
  check(groups >= 1 && groups <= ExpertChoice::most_groups && experts % groups == 0 &&
            choice.active_groups >= 1 && choice.active_groups <= groups &&
            choice.active <= experts / groups * choice.active_groups,
        choice.active, " of ", experts, " experts from ", choice.active_groups, " of ", groups,
        " groups, expected a divisor of the experts and groups with enough of them");
}

void expect_active(std::int64_t active) {
  check(active >= 1, active, " active experts, expected 1 or more");
}

/// k of routes [T, 2k].
template <class View>
std::int64_t active_of(const View& routes) {
  const std::int64_t columns = extent(routes, 1);
  check(columns >= 2 && columns % 2 == 0, "routes have ", columns,
        " columns, expected a weight and a number for each active expert");
  return columns / 2;
}

}  // namespace

namespace {

/// The choice by logits, whose order is that of their softmax.
template <class A>
void choose_by_logits(const Exec& exec, View2<A> routes, View2<A> scores,
                      const ExpertChoice& choice) {
  const std::int64_t rows = extent(scores, 0), experts = extent(scores, 1);
  const std::int64_t active = choice.active;
  const bool normalised = choice.normalised;
  const A scale = static_cast<A>(choice.scale);
  for_rows(
      "kernels/choose_experts", exec, rows, KOKKOS_LAMBDA(const Team& team, std::int64_t r) {
        A* row = row_of(scores, r);
        A* weights = row_of(routes, r);
        A* numbers = weights + active;
        const auto key = [&](std::int64_t i) { return ranked(row[i]); };
        const auto limit = choice_limit<A>(team, key, experts, active);
        const A largest = limit.largest;
        once(team, [&]() { list_choice<A>(numbers, key, active, limit); });
        team.team_barrier();
        map_lanes(
            team, experts, row,
            [&](std::int64_t, A logit) { return exp_of_difference(logit - largest); }, row);
        team.team_barrier();
        const A total = sum_of<A>(
            team, experts, [](std::int64_t, A v) { return v; }, row);
        once(team, [&]() {
          A chosen = 0;
          for (std::int64_t j = 0; j < active; ++j) {
            weights[j] = row[static_cast<std::int64_t>(numbers[j])];
            chosen += weights[j];
          }
          for (std::int64_t j = 0; j < active; ++j)
            weights[j] = weights[j] / (normalised ? chosen : total) * scale;
        });
        team.team_barrier();
        map_lanes(
            team, experts, row, [&](std::int64_t, A v) { return v / total; }, row);
      });
}

/// The choice by scores, with a bias and groups.
template <class A, class B>
void choose_by_scores(const Exec& exec, View2<A> routes, View2<A> scores, View1<const B> bias,
                      const ExpertChoice& choice) {
  const std::int64_t rows = extent(scores, 0), experts = extent(scores, 1);
  const ExpertChoice c = choice;
  const std::int64_t each = experts / c.groups;
  for_rows(
      "kernels/choose_experts", exec, rows, KOKKOS_LAMBDA(const Team& team, std::int64_t r) {
        A* row = row_of(scores, r);
        A* weights = row_of(routes, r);
        A* numbers = weights + c.active;
        if (c.sigmoid) {
          map_lanes(
              team, experts, row, [](std::int64_t, A logit) { return sigmoid(logit); }, row);
        } else {
          const A largest =
              max_lanes<A>(team, experts, [&](std::int64_t i) { return ranked(row[i]); });
          team.team_barrier();
          map_lanes(
              team, experts, row,
              [&](std::int64_t, A logit) { return exp_of_difference(logit - largest); }, row);
          team.team_barrier();
          const A total = sum_of<A>(
              team, experts, [](std::int64_t, A v) { return v; }, row);
          team.team_barrier();
          map_lanes(
              team, experts, row, [&](std::int64_t, A v) { return v / total; }, row);
        }
        team.team_barrier();
        const B* added = bias.data();
        const auto biased = [&](std::int64_t i) {
          return ranked(added == nullptr ? row[i] : row[i] + static_cast<A>(added[i]));
        };
        const std::uint64_t groups =
            c.groups > 1 ? chosen_groups<A>(biased, experts, c.groups, c.active_groups) : 1;
        const auto key = [&](std::int64_t i) {
          return (groups >> (i / each) & 1) != 0 ? biased(i) : -infinity<A>;
        };
        const auto limit = choice_limit<A>(team, key, experts, c.active);
        once(team, [&]() {
          list_choice<A>(numbers, key, c.active, limit);
          A chosen = 0;
          for (std::int64_t j = 0; j < c.active; ++j) {
            weights[j] = row[static_cast<std::int64_t>(numbers[j])];
            chosen += weights[j];
          }
          const A divisor = c.normalised ? chosen + static_cast<A>(least_sum) : A(1);
          for (std::int64_t j = 0; j < c.active; ++j)
            weights[j] = weights[j] / divisor * static_cast<A>(c.scale);
        });
      });
}

}  // namespace

template <class A, class B>
void choose_experts(const Exec& exec, View2<A> routes, View2<A> scores, View1<const B> bias,
                    const ExpertChoice& choice) {
  const std::int64_t rows = extent(scores, 0), experts = extent(scores, 1);
  expect_choice(choice, experts);
  expect_shape(routes, "routes", {rows, 2 * choice.active});
  if (bias.data() != nullptr) expect_shape(bias, "bias", {experts});
  if (choice.sigmoid || choice.groups > 1 || bias.data() != nullptr)
    choose_by_scores<A, B>(exec, routes, scores, bias, choice);
  else
    choose_by_logits<A>(exec, routes, scores, choice);
  if constexpr (std::is_same_v<A, double>)
    if (const ChoiceObserver& observer = choice_observer()) {
      fence(exec, "kernels/choose_experts shows choices to a test");
      observer(routes, scores, bias, choice);
    }
}

ChoiceObserver& choice_observer() {
  static ChoiceObserver observer;
  return observer;
}

template <class A>
void choose_experts_backward(const Exec& exec, View2<A> dlogits, View2<const A> droutes,
                             View2<const A> routes, View2<const A> scores,
                             const ExpertChoice& choice) {
  const std::int64_t rows = extent(scores, 0), experts = extent(scores, 1);
  expect_choice(choice, experts);
  const ExpertChoice c = choice;
  const std::int64_t active = c.active;
  const A scale = static_cast<A>(c.scale);
  expect_shape(dlogits, "dlogits", {rows, experts});
  expect_shape(droutes, "droutes", {rows, 2 * active});
  expect_shape(routes, "routes", {rows, 2 * active});
  for_rows(
      "kernels/choose_experts_backward", exec, rows,
      KOKKOS_LAMBDA(const Team& team, std::int64_t r) {
        const A* weights = row_of(routes, r);
        const A* numbers = weights + active;
        const A* dweights = row_of(droutes, r);
        const A* score = row_of(scores, r);
        A* to = row_of(dlogits, r);
        A sum = 0, chosen = static_cast<A>(least_sum);
        for (std::int64_t j = 0; j < active; ++j) {
          sum += weights[j] * dweights[j];
          const std::int64_t i = chosen_expert(numbers[j]);
          if (i >= 0) chosen += score[i];
        }
        const A others = c.normalised || c.sigmoid ? A(0) : -sum;
        map_lanes(
            team, experts, to, [&](std::int64_t, A p) { return others * p; }, score);
        team.team_barrier();
        for_lanes(team, active, [&](std::int64_t j) {
          const std::int64_t i = chosen_expert(numbers[j]);
          if (i < 0) return;  // padding: all scores are 0
          const A of_score =
              c.normalised ? (scale * dweights[j] - sum) / chosen : scale * dweights[j];
          to[i] = c.sigmoid ? of_score * score[i] * (1 - score[i])
                            : weights[j] * (dweights[j] - sum / scale);
        });
      });
}

namespace {

/// Host: a counting sort in one thread, which reads the routes twice.
template <class A>
void sort_routes(const Exec& exec, View1<std::int32_t> order, View1<std::int32_t> bounds,
                 View2<const A> routes, const layout::Slice& held) {
  const std::int64_t tokens = extent(routes, 0), active = extent(routes, 1) / 2;
  const std::int64_t first = held.offset, count = held.extent;
  for_rows(
      "kernels/order_routes", exec, 1, KOKKOS_LAMBDA(const Team&, std::int64_t) {
        for (std::int64_t i = 0; i <= count; ++i) bounds(i) = 0;
        for (std::int64_t t = 0; t < tokens; ++t)
          for (std::int64_t j = 0; j < active; ++j) {
            const std::int64_t i = static_cast<std::int64_t>(routes(t, active + j)) - first;
            if (i >= 0 && i < count) ++bounds(i);
          }
        // Each bound is its expert's end first. Tokens in descending order move it to the begin.
        for (std::int64_t i = 0; i < count; ++i) bounds(i + 1) += bounds(i);
        for (std::int64_t t = tokens - 1; t >= 0; --t)
          for (std::int64_t j = active - 1; j >= 0; --j) {
            const std::int64_t i = static_cast<std::int64_t>(routes(t, active + j)) - first;
            if (i >= 0 && i < count) order(--bounds(i)) = static_cast<std::int32_t>(t * active + j);
          }
      });
}

/// Devices: team i of H + 1 counts the routes to the held experts before expert i, which is
/// bounds(i), and lists the routes to expert i from there on. Team H only counts.
template <class A>
struct ListRoutes {
  using Member = DevicePolicy::member_type;

  View1<std::int32_t> order, bounds;
  View2<const A> routes;  // [T, 2k]
  std::int64_t first, count;

  KOKKOS_FUNCTION void operator()(const Member& team) const {
    const std::int64_t i = team.league_rank();
    const std::int64_t tokens = extent(routes, 0), active = extent(routes, 1) / 2;
    const A from = static_cast<A>(first), expert = static_cast<A>(first + i);
    const int begin = sum_lanes<int>(team, tokens, [&](std::int64_t t) {
      const A* numbers = row_of(routes, t) + active;
      int before = 0;
      for (std::int64_t j = 0; j < active; ++j) before += numbers[j] >= from && numbers[j] < expert;
      return before;
    });
    once(team, [&]() { bounds(i) = begin; });
    if (i == count) return;
    Kokkos::parallel_scan(Kokkos::TeamThreadRange(team, tokens),
                          [&](const std::int64_t t, int& place, const bool final) {
                            const A* numbers = row_of(routes, t) + active;
                            std::int64_t j = 0;
                            while (j < active && numbers[j] != expert) ++j;
                            if (j == active) return;
                            if (final)
                              order(begin + place) = static_cast<std::int32_t>(t * active + j);
                            ++place;
                          });
  }
};

template <class A>
void list_routes(const Exec& exec, const ListRoutes<A>& list) {
  // Each step of a scan synchronises the team: more threads take fewer steps.
  const int threads = as_on_device ? row_threads(exec) : 512;
  Kokkos::parallel_for("kernels/order_routes",
                       DevicePolicy(exec, static_cast<int>(list.count + 1), threads), list);
}

}  // namespace

template <class A>
void log_sums_of_exponentials(const Exec& exec, View1<A> sums, View2<const A> logits) {
  const std::int64_t rows = extent(logits, 0), experts = extent(logits, 1);
  expect_shape(sums, "sums", {rows});
  for_rows(
      "kernels/log_sums_of_exponentials", exec, rows,
      KOKKOS_LAMBDA(const Team& team, std::int64_t r) {
        const A* row = row_of(logits, r);
        A largest = row[0];
        for (std::int64_t e = 1; e < experts; ++e) largest = row[e] > largest ? row[e] : largest;
        const A total = sum_of<A>(
            team, experts,
            [&](std::int64_t, A logit) { return exp_of_difference(logit - largest); }, row);
        once(team, [&]() { sums(r) = largest + math::log(total); });
      });
}

template <class A, class C>
void count_experts(const Exec& exec, View2<C> counts, View2<const A> routes) {
  const std::int64_t tokens = extent(routes, 0), active = active_of(routes);
  const std::int64_t samples = extent(counts, 0);
  if (tokens == 0) return;
  check(samples > 0 && tokens % samples == 0, tokens, " rows of ", samples,
        " samples, expected a multiple");
  const std::int64_t per_sample = tokens / samples;
  // Sums of whole numbers do not depend on their order.
  Kokkos::parallel_for(
      "kernels/count_experts",
      Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>(exec, 0, tokens),
      KOKKOS_LAMBDA(const std::int64_t t) {
        for (std::int64_t j = active; j < 2 * active; ++j)
          if (const std::int64_t e = chosen_expert(routes(t, j)); e >= 0)
            Kokkos::atomic_add(&counts(t / per_sample, e), C(1));
      });
}

template <class A, class B>
void balance_experts(const Exec& exec, View1<double> losses, View2<A> dlogits,
                     View2<const A> scores, View2<const B> counts, const SampleRows& of,
                     double weight, const LossScale& scale, bool sigmoid) {
  const std::int64_t rows = extent(scores, 0), experts = extent(scores, 1);
  const bool has_gradient = dlogits.extent(0) > 0;
  expect_shape(losses, "losses", {rows});
  expect_shape(counts, "counts", {extent(counts, 0), experts});
  if (has_gradient) expect_shape(dlogits, "dlogits", {rows, experts});
  const std::int64_t first = of.first, per_sample = of.per_sample;
  const View1<const std::int32_t> tokens = of.tokens;
  const bool has_padding = tokens.extent(0) > 0;
  if (has_padding) expect_shape(tokens, "tokens", {rows});
  for_rows(
      "kernels/balance_experts", exec, rows, KOKKOS_LAMBDA(const Team& team, std::int64_t r) {
        const auto own = static_cast<double>(has_padding ? tokens(r) : 1);
        if (own == 0) {
          once(team, [&]() { losses(r) = 0; });
          return;
        }
        const double of_row = weight / (own * own);
        const A* score = row_of(scores, r);
        const B* count = row_of(counts, (first + r) / per_sample);
        A total = sigmoid ? sum_of<A>(
                                team, experts, [](std::int64_t, A p) { return p; }, score)
                          : A(1);
        if (total == 0) total = 1;  // padding
        const A mean =
            sum_of<A>(
                team, experts, [](std::int64_t, A p, A n) { return p * n; }, score, count) /
            total;
        once(team, [&]() { losses(r) = of_row * static_cast<double>(mean); });
        if (!has_gradient) return;
        const auto factor = static_cast<A>(of_row * scale());
        A* gradient = row_of(dlogits, r);
        if (sigmoid) {
          map_lanes(
              team, experts, gradient,
              [&](std::int64_t, A d, A p, A n) {
                return d + factor * p * (1 - p) / total * (n - mean);
              },
              gradient, score, count);
          return;
        }
        map_lanes(
            team, experts, gradient,
            [&](std::int64_t, A d, A p, A n) { return d + factor * p * (n - mean); }, gradient,
            score, count);
      });
}

template <class A>
void limit_logits(const Exec& exec, View1<double> losses, View2<A> dlogits, View2<const A> scores,
                  View1<const A> sums, double weight, const LossScale& scale) {
  const std::int64_t rows = extent(scores, 0), experts = extent(scores, 1);
  const bool has_gradient = dlogits.extent(0) > 0;
  expect_shape(losses, "losses", {rows});
  expect_shape(sums, "sums", {rows});
  if (has_gradient) expect_shape(dlogits, "dlogits", {rows, experts});
  for_rows(
      "kernels/limit_logits", exec, rows, KOKKOS_LAMBDA(const Team& team, std::int64_t r) {
        const A sum = sums(r);
        once(team,
             [&]() { losses(r) = weight * static_cast<double>(sum) * static_cast<double>(sum); });
        if (!has_gradient) return;
        const auto factor = static_cast<A>(2 * weight * scale()) * sum;
        A* gradient = row_of(dlogits, r);
        map_lanes(
            team, experts, gradient, [&](std::int64_t, A d, A p) { return d + factor * p; },
            gradient, row_of(scores, r));
      });
}

template <class A>
void order_routes(const Exec& exec, View1<std::int32_t> order, View1<std::int32_t> bounds,
                  View2<const A> routes, const layout::Slice& held) {
  const std::int64_t tokens = extent(routes, 0), active = active_of(routes);
  check(held.offset >= 0 && held.extent >= 0, "experts ", held.offset, " to ", held.end(),
        ", expected a range from 0 on");
  expect_shape(bounds, "bounds", {held.extent + 1});
  check(tokens * active <= std::numeric_limits<std::int32_t>::max(), tokens, " tokens with ",
        active, " experts each, expected fewer than 2^31 routes");
  const std::int64_t most = tokens * std::min(active, held.extent);
  check(extent(order, 0) >= most, "order has ", extent(order, 0), " elements, expected at least ",
        most);
  if constexpr (exec_on_host)
    sort_routes<A>(exec, order, bounds, routes, held);
  else
    list_routes<A>(exec, {order, bounds, routes, held.offset, held.extent});
}

template <class T>
void pick_routed(const Exec& exec, View2<T> picked, View2<const T> rows,
                 View1<const std::int32_t> order, std::int64_t active) {
  const std::int64_t columns = extent(rows, 1);
  expect_active(active);
  expect_shape(picked, "picked", {extent(order, 0), columns});
  for_rows(
      "kernels/pick_routed", exec, extent(order, 0),
      KOKKOS_LAMBDA(const Team& team, std::int64_t i) {
        T* to = row_of(picked, i);
        const T* from = row_of(rows, order(i) / active);
        copy_lanes(team, columns, to, from);
      });
}

template <class T>
void add_routed(const Exec& exec, View2<Accumulate<T>> sums, View2<const T> rows,
                View1<const std::int32_t> order, std::int64_t active) {
  using Acc = Accumulate<T>;
  const std::int64_t columns = extent(sums, 1);
  expect_active(active);
  expect_shape(rows, "rows", {extent(order, 0), columns});
  for_rows(
      "kernels/add_routed", exec, extent(order, 0),
      KOKKOS_LAMBDA(const Team& team, std::int64_t i) {
        Acc* sum = row_of(sums, order(i) / active);
        const T* row = row_of(rows, i);
        map_lanes(
            team, columns, sum, [](std::int64_t, Acc v, Acc more) { return v + more; }, sum, row);
      });
}

template <class T>
void weigh_routed(const Exec& exec, View2<T> rows, View2<const Accumulate<T>> routes,
                  View1<const std::int32_t> order) {
  using Acc = Accumulate<T>;
  const std::int64_t columns = extent(rows, 1), active = active_of(routes);
  expect_shape(rows, "rows", {extent(order, 0), columns});
  for_rows(
      "kernels/weigh_routed", exec, extent(order, 0),
      KOKKOS_LAMBDA(const Team& team, std::int64_t i) {
        const Acc weight = routes(order(i) / active, order(i) % active);
        T* row = row_of(rows, i);
        map_lanes(
            team, columns, row, [&](std::int64_t, Acc v) { return v * weight; }, row);
      });
}

template <class T>
void dot_routed(const Exec& exec, View2<Accumulate<T>> droutes, View2<const T> a, View2<const T> b,
                View1<const std::int32_t> order) {
  using Acc = Accumulate<T>;
  const std::int64_t columns = extent(a, 1), active = active_of(droutes);
  expect_shape(a, "a", {extent(order, 0), columns});
  expect_shape(b, "b", {extent(order, 0), columns});
  for_rows(
      "kernels/dot_routed", exec, extent(order, 0),
      KOKKOS_LAMBDA(const Team& team, std::int64_t i) {
        const T* left = row_of(a, i);
        const T* right = row_of(b, i);
        const Acc sum = sum_of<Acc>(
            team, columns, [](std::int64_t, Acc u, Acc v) { return u * v; }, left, right);
        once(team, [&]() { droutes(order(i) / active, order(i) % active) += sum; });
      });
}

template <class T>
void add_weighed_bias(const Exec& exec, View2<T> rows, View1<const T> bias,
                      View2<const Accumulate<T>> routes, View1<const std::int32_t> order) {
  using Acc = Accumulate<T>;
  const std::int64_t columns = extent(rows, 1), active = active_of(routes);
  expect_shape(rows, "rows", {extent(order, 0), columns});
  expect_shape(bias, "bias", {columns});
  for_rows(
      "kernels/add_weighed_bias", exec, extent(order, 0),
      KOKKOS_LAMBDA(const Team& team, std::int64_t i) {
        const Acc weight = routes(order(i) / active, order(i) % active);
        const T* added = bias.data();
        T* row = row_of(rows, i);
        map_lanes(
            team, columns, row, [&](std::int64_t, Acc v, Acc b) { return v + weight * b; }, row,
            added);
      });
}

template <class T>
void dot_bias(const Exec& exec, View2<Accumulate<T>> droutes, View2<const T> drows,
              View1<const T> bias, View1<const std::int32_t> order) {
  using Acc = Accumulate<T>;
  const std::int64_t columns = extent(drows, 1), active = active_of(droutes);
  expect_shape(drows, "drows", {extent(order, 0), columns});
  expect_shape(bias, "bias", {columns});
  for_rows(
      "kernels/dot_bias", exec, extent(order, 0), KOKKOS_LAMBDA(const Team& team, std::int64_t i) {
        const T* left = row_of(drows, i);
        const T* right = bias.data();
        const Acc sum = sum_of<Acc>(
            team, columns, [](std::int64_t, Acc u, Acc v) { return u * v; }, left, right);
        once(team, [&]() { droutes(order(i) / active, order(i) % active) += sum; });
      });
}

template <class T>
void gate_rows(const Exec& exec, View2<T> y, View2<T> raw, View1<const Accumulate<T>> logits) {
  using A = Accumulate<T>;
  const std::int64_t rows = extent(y, 0), columns = extent(y, 1);
  expect_shape(raw, "raw", {rows, columns});
  expect_shape(logits, "logits", {rows});
  for_rows(
      "kernels/gate_rows", exec, rows, KOKKOS_LAMBDA(const Team& team, std::int64_t r) {
        T* row = row_of(y, r);
        T* before = row_of(raw, r);
        const A factor = sigmoid(logits(r));
        map_lanes_to_two(
            team, columns, before, row,
            [&](std::int64_t, A v) {
              return Two<A>{v, factor * v};
            },
            row);
      });
}

template <class T>
void gate_rows_backward(const Exec& exec, View2<T> dy, View1<T> dlogits, View2<const T> raw,
                        View1<const Accumulate<T>> logits) {
  using A = Accumulate<T>;
  const std::int64_t rows = extent(dy, 0), columns = extent(dy, 1);
  expect_shape(raw, "raw", {rows, columns});
  expect_shape(logits, "logits", {rows});
  expect_shape(dlogits, "dlogits", {rows});
  for_rows(
      "kernels/gate_rows_backward", exec, rows, KOKKOS_LAMBDA(const Team& team, std::int64_t r) {
        T* row = row_of(dy, r);
        const A factor = sigmoid(logits(r));
        const A sum = sum_of<A>(
            team, columns, [](std::int64_t, A u, A v) { return u * v; }, row, row_of(raw, r));
        once(team, [&]() { dlogits(r) = static_cast<T>(factor * sigmoid(-logits(r)) * sum); });
        map_lanes(
            team, columns, row, [&](std::int64_t, A v) { return factor * v; }, row);
      });
}

template <class T>
void round_sums(const Exec& exec, View2<T> y, View2<const Accumulate<T>> sums) {
  const std::int64_t columns = extent(y, 1);
  expect_shape(sums, "sums", {extent(y, 0), columns});
  for_rows(
      "kernels/round_sums", exec, extent(y, 0), KOKKOS_LAMBDA(const Team& team, std::int64_t t) {
        T* to = row_of(y, t);
        const Accumulate<T>* from = row_of(sums, t);
        map_lanes(
            team, columns, to, [](std::int64_t, Accumulate<T> v) { return v; }, from);
      });
}

#define TRIREME_INSTANTIATE(A, B)                                                                  \
  template void choose_experts<A, B>(const Exec&, View2<A>, View2<A>, View1<const B>,              \
                                     const ExpertChoice&);                                         \
  template void balance_experts<A, B>(const Exec&, View1<double>, View2<A>, View2<const A>,        \
                                      View2<const B>, const SampleRows&, double, const LossScale&, \
                                      bool)
TRIREME_INSTANTIATE(float, float);
TRIREME_INSTANTIATE(double, double);
TRIREME_INSTANTIATE(float, Bf16);
TRIREME_INSTANTIATE(float, Fp16);
#undef TRIREME_INSTANTIATE

#define TRIREME_INSTANTIATE(A)                                                                    \
  template void choose_experts_backward<A>(const Exec&, View2<A>, View2<const A>, View2<const A>, \
                                           View2<const A>, const ExpertChoice&);                  \
  template void log_sums_of_exponentials<A>(const Exec&, View1<A>, View2<const A>);               \
  template void limit_logits<A>(const Exec&, View1<double>, View2<A>, View2<const A>,             \
                                View1<const A>, double, const LossScale&);                        \
  template void order_routes<A>(const Exec&, View1<std::int32_t>, View1<std::int32_t>,            \
                                View2<const A>, const layout::Slice&);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(double)
#undef TRIREME_INSTANTIATE

#define TRIREME_INSTANTIATE(T)                                                                   \
  template void pick_routed<T>(const Exec&, View2<T>, View2<const T>, View1<const std::int32_t>, \
                               std::int64_t);                                                    \
  template void add_routed<T>(const Exec&, View2<Accumulate<T>>, View2<const T>,                 \
                              View1<const std::int32_t>, std::int64_t);                          \
  template void weigh_routed<T>(const Exec&, View2<T>, View2<const Accumulate<T>>,               \
                                View1<const std::int32_t>);                                      \
  template void add_weighed_bias<T>(const Exec&, View2<T>, View1<const T>,                       \
                                    View2<const Accumulate<T>>, View1<const std::int32_t>);      \
  template void dot_bias<T>(const Exec&, View2<Accumulate<T>>, View2<const T>, View1<const T>,   \
                            View1<const std::int32_t>);                                          \
  template void dot_routed<T>(const Exec&, View2<Accumulate<T>>, View2<const T>, View2<const T>, \
                              View1<const std::int32_t>);                                        \
  template void gate_rows<T>(const Exec&, View2<T>, View2<T>, View1<const Accumulate<T>>);       \
  template void gate_rows_backward<T>(const Exec&, View2<T>, View1<T>, View2<const T>,           \
                                      View1<const Accumulate<T>>);                               \
  template void round_sums<T>(const Exec&, View2<T>, View2<const Accumulate<T>>);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(Bf16)
TRIREME_INSTANTIATE(Fp16)
#undef TRIREME_INSTANTIATE

template void count_experts<float>(const Exec&, View2<float>, View2<const float>);
template void count_experts<float, double>(const Exec&, View2<double>, View2<const float>);
template void count_experts<double>(const Exec&, View2<double>, View2<const double>);

}  // namespace trireme::kernels
