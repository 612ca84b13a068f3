// Lists of the tokens that replicas send to one another: a counting sort on hosts, one team per
// replica on devices.
#include <trireme/kernels/expert_copies.hpp>

#include <trireme/base/check.hpp>
#include <trireme/kernels/packs.hpp>
#include <trireme/tensor/expect.hpp>

#include <algorithm>

namespace trireme::kernels {
namespace {

/// ExpertParts with the sizes of the parts.
struct Places {
  ExpertParts parts;
  std::int64_t base, larger;  ///< experts of a small part, and number of parts with one more

  explicit Places(const ExpertParts& of)
      : parts(of),
        base(of.experts / (of.replicas * of.tensor_ranks)),
        larger(of.experts % (of.replicas * of.tensor_ranks)) {}

  /// The replica that has an expert on this tensor rank; −1: another tensor rank has it, or the
  /// route is dropped.
  KOKKOS_FUNCTION std::int64_t replica(std::int64_t expert) const {
    if (expert < 0) return -1;
    const std::int64_t in_larger = larger * (base + 1);
    const std::int64_t part =
        expert < in_larger ? expert / (base + 1) : larger + (expert - in_larger) / base;
    return part % parts.tensor_ranks == parts.tensor_rank ? part / parts.tensor_ranks : -1;
  }

  /// Calls use(replica) for each replica that needs a token, ascending, as its experts are.
  /// `numbers`: the token's `active` experts.
  template <class A, class Use>
  KOKKOS_FUNCTION void visit(const A* numbers, std::int64_t active, const Use& use) const {
    std::int64_t last = -1;
    for (std::int64_t j = 0; j < active; ++j) {
      const std::int64_t to = replica(static_cast<std::int64_t>(numbers[j]));
      if (to < 0 || to == last) continue;
      last = to;
      use(to);
    }
  }
};

/// Host: a counting sort in one thread, which reads the routes twice.
template <class A>
void sort_copies(const Exec& exec, View1<std::int32_t> order, View1<std::int32_t> bounds,
                 View2<const A> routes, const Places& places) {
  const std::int64_t tokens = extent(routes, 0), active = extent(routes, 1) / 2;
  const std::int64_t replicas = places.parts.replicas;
  for_rows(
      "kernels/list_copies", exec, 1, KOKKOS_LAMBDA(const Team&, std::int64_t) {
        for (std::int64_t j = 0; j <= replicas; ++j) bounds(j) = 0;
        for (std::int64_t t = 0; t < tokens; ++t)
          places.visit(row_of(routes, t) + active, active, [&](std::int64_t j) { ++bounds(j); });
        // Each bound is its replica's end first. Tokens in descending order move it to the begin.
        for (std::int64_t j = 0; j < replicas; ++j) bounds(j + 1) += bounds(j);
        for (std::int64_t t = tokens - 1; t >= 0; --t)
          places.visit(row_of(routes, t) + active, active,
                       [&](std::int64_t j) { order(--bounds(j)) = static_cast<std::int32_t>(t); });
      });
}

/// Devices: team j of e + 1 counts the copies for the replicas before replica j, which is
/// bounds(j), and lists the tokens for replica j from there on. Team e only counts.
template <class A>
struct ListCopies {
  using Member = DevicePolicy::member_type;

  View1<std::int32_t> order, bounds;
  View2<const A> routes;  // [T, 2k]
  Places places;

  KOKKOS_FUNCTION void operator()(const Member& team) const {
    const std::int64_t replica = team.league_rank();
    const std::int64_t tokens = extent(routes, 0), active = extent(routes, 1) / 2;
    const int begin = sum_lanes<int>(team, tokens, [&](std::int64_t t) {
      int before = 0;
      places.visit(row_of(routes, t) + active, active,
                   [&](std::int64_t j) { before += j < replica ? 1 : 0; });
      return before;
    });
    once(team, [&]() { bounds(replica) = begin; });
    if (replica == places.parts.replicas) return;
    Kokkos::parallel_scan(Kokkos::TeamThreadRange(team, tokens),
                          [&](const std::int64_t t, int& place, const bool final) {
                            bool needs = false;
                            places.visit(row_of(routes, t) + active, active,
                                         [&](std::int64_t j) { needs = needs || j == replica; });
                            if (!needs) return;
                            if (final) order(begin + place) = static_cast<std::int32_t>(t);
                            ++place;
                          });
  }
};

}  // namespace

template <class A>
void list_copies(const Exec& exec, View1<std::int32_t> order, View1<std::int32_t> bounds,
                 View2<const A> routes, const ExpertParts& parts) {
  const std::int64_t tokens = extent(routes, 0), active = extent(routes, 1) / 2;
  check(parts.replicas >= 1 && parts.tensor_ranks >= 1 && parts.tensor_rank >= 0 &&
            parts.tensor_rank < parts.tensor_ranks &&
            parts.experts >= parts.replicas * parts.tensor_ranks,
        parts.experts, " experts for ", parts.replicas, " replicas of ", parts.tensor_ranks,
        " tensor ranks, expected an expert for each");
  expect_shape(bounds, "bounds", {parts.replicas + 1});
  check(extent(order, 0) >= tokens * std::min(active, parts.replicas), "a list of ",
        extent(order, 0), " copies of ", tokens, " tokens with ", active, " experts on ",
        parts.replicas, " replicas, expected room for ", tokens * std::min(active, parts.replicas));
  const Places places(parts);
  if constexpr (exec_on_host) {
    sort_copies<A>(exec, order, bounds, routes, places);
  } else {
    // Each step of a scan synchronises the team: more threads take fewer steps.
    const int threads = as_on_device ? row_threads(exec) : 512;
    Kokkos::parallel_for("kernels/list_copies",
                         DevicePolicy(exec, static_cast<int>(parts.replicas + 1), threads),
                         ListCopies<A>{order, bounds, routes, places});
  }
}

template void list_copies<float>(const Exec&, View1<std::int32_t>, View1<std::int32_t>,
                                 View2<const float>, const ExpertParts&);
template void list_copies<double>(const Exec&, View1<std::int32_t>, View1<std::int32_t>,
                                  View2<const double>, const ExpertParts&);

}  // namespace trireme::kernels
