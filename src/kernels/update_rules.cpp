// Launches of the passes of update rules. The functions of elements are in rules/.
#include <trireme/kernels/update_rules.hpp>

#include <trireme/kernels/packs.hpp>
#include <trireme/kernels/rule_launch.hpp>
#include <trireme/tensor/expect.hpp>

#include <type_traits>

namespace trireme::kernels {
namespace detail {

/// x rounded to one of its two neighbours in bf16, at random: `random` is uniform in [0, 2^16).
KOKKOS_FORCEINLINE_FUNCTION Bf16 round_at_random(float x, std::uint32_t random) {
  std::uint32_t bits = 0;
  __builtin_memcpy(&bits, &x, sizeof bits);
  const bool finite = (bits & 0x7F800000u) != 0x7F800000u;
  Bf16 rounded;
  rounded.bits = static_cast<std::uint16_t>((finite ? bits + random : bits) >> 16);
  return rounded;
}

/// Elements [64 g, 64 g + 64) use the blocks [16 g, 16 g + 16) of random numbers: word k of block
/// 16 g + l belongs to element 64 g + 16 k + l. Lanes of a host draw 16 blocks at once.
constexpr std::int64_t random_lanes = 16, random_group = 64;

template <class Real>
struct StatePointers {
  Real* full[most_states] = {};
  Bf16* narrow[most_states] = {};
};

/// A pass over the elements of parts. F: a function of elements.
template <class F, class Real, bool narrow>
struct ElementBody {
  Real* weight;
  Real* gradient;
  StatePointers<Real> states;
  rules::Settings settings;
  double learning_rate;
  const double* control;
  const double* factors;
  RandomKey rounding;
  const double* rates;

  KOKKOS_FORCEINLINE_FUNCTION void operator()(const Team& team, const UpdateRange& part) const {
    if (control[control_proceed] == 0) return;
    const double rate = rate_of(learning_rate, rates, part.array);
    const F f(settings, step_of(control, rate, factors, part));
    Real* w = weight + part.weight;
    Real* g = gradient + part.gradient;
    if constexpr (narrow)
      run_narrow(team, part, f, w, g);
    else if constexpr (F::of_gradient)
      run(team, part, f, g, static_cast<const Real*>(w));
    else
      run(team, part, f, w, static_cast<const Real*>(g));
  }

  KOKKOS_FORCEINLINE_FUNCTION void run(const Team& team, const UpdateRange& part, const F& f,
                                       Real* target, const Real* input) const {
    if constexpr (F::states == 0)
      update_lanes(team, part.elements, f, target, input);
    else if constexpr (F::states == 1)
      update_lanes(team, part.elements, f, target, input, states.full[0] + part.state);
    else
      update_lanes(team, part.elements, f, target, input, states.full[0] + part.state,
                   states.full[1] + part.state);
  }

  /// Elements between two multiples of part.run are contiguous in the global array.
  KOKKOS_FORCEINLINE_FUNCTION void run_narrow(const Team& team, const UpdateRange& part, const F& f,
                                              Real* w, Real* g) const {
    RandomKey key = rounding;
    key.stream = static_cast<std::uint32_t>(part.array);
    for (std::int64_t done = 0; done < part.elements;) {
      const std::int64_t local = part.local + done, within = local % part.run;
      const std::int64_t left = part.elements - done, rest = part.run - within;
      const std::int64_t count = left < rest ? left : rest;
      const std::int64_t global = local / part.run * part.stride + within + part.first;
      Real* target = (F::of_gradient ? g : w) + done;
      const Real* input = (F::of_gradient ? w : g) + done;
      Bf16* first = states.narrow[0] + part.state + done;
      Bf16* second = states.narrow[1] + (F::states > 1 ? part.state + done : 0);
      const auto update = [&](std::int64_t i, std::uint32_t word) {
        Real one = static_cast<Real>(static_cast<float>(first[i]));
        if constexpr (F::states == 1) {
          f(target[i], input[i], one);
        } else {
          Real two = static_cast<Real>(static_cast<float>(second[i]));
          f(target[i], input[i], one, two);
          second[i] = round_at_random(static_cast<float>(two), word >> 16);
        }
        first[i] = round_at_random(static_cast<float>(one), word & 0xFFFFu);
      };
      if constexpr (exec_on_host) {
        for (std::int64_t at = 0; at < count;) {
          std::uint32_t words[random_group];
          const std::int64_t in_group = (global + at) % random_group;
          const auto block =
              static_cast<std::uint64_t>((global + at) / random_group * random_lanes);
          for_lanes(team, random_lanes, [&](std::int64_t lane) {
            const Words4 drawn = philox(key, block + static_cast<std::uint64_t>(lane));
            for (int k = 0; k < 4; ++k) words[k * random_lanes + lane] = drawn.w[k];
          });
          const std::int64_t whole = random_group - in_group;
          const std::int64_t n = count - at < whole ? count - at : whole;
          for_lanes(team, n, [&](std::int64_t i) { update(at + i, words[in_group + i]); });
          at += n;
        }
      } else {
        for_lanes(team, count, [&](std::int64_t i) {
          const std::int64_t number = global + i, in_group = number % random_group;
          const auto block = static_cast<std::uint64_t>(number / random_group * random_lanes +
                                                        in_group % random_lanes);
          const Words4 drawn = philox(key, block);
          const std::int64_t k = in_group / random_lanes;
          const std::uint32_t low = k == 0 ? drawn.w[0] : drawn.w[1];
          const std::uint32_t high = k == 2 ? drawn.w[2] : drawn.w[3];
          update(i, k < 2 ? low : high);
        });
      }
      done += count;
    }
  }
};

template <class Pass, class Real>
void launch_elements(const Exec& exec, const UpdateArenas<Real>& arenas, const UpdateStep& step,
                     const UpdateRanges& parts) {
  using F = typename Pass::template Function<Real>;
  static_assert(F::states <= most_states);
  StatePointers<Real> states;
  for (int i = 0; i < most_states; ++i) {
    states.full[i] = arenas.states[static_cast<std::size_t>(i)].full.data();
    states.narrow[i] = arenas.states[static_cast<std::size_t>(i)].narrow.data();
  }
  const auto launch = [&]<bool narrow>(std::bool_constant<narrow>) {
    for_parts(F::label, exec, parts,
              ElementBody<F, Real, narrow>{arenas.weight.data(), arenas.gradient.data(), states,
                                           step.settings, step.learning_rate, step.control.data(),
                                           step.factors.data(), step.rounding, step.rates.data()});
  };
  if constexpr (std::is_same_v<Real, float> && F::states > 0)
    if (states.narrow[0] != nullptr) return launch(std::true_type{});
  launch(std::false_type{});
}

/// Norm of array a from the sums of squares of its parts, added in order.
KOKKOS_FORCEINLINE_FUNCTION double norm_of_parts(const double* sums, std::int64_t a,
                                                 std::int64_t parts) {
  double squares = 0;
  for (std::int64_t p = a * parts; p < (a + 1) * parts; ++p) squares += sums[p];
  return math::sqrt(squares);
}

template <class R>
struct FactorBody {
  double* factors;
  const double* weight_sums;
  const double* other_sums;
  const double* elements;
  std::int64_t parts;
  rules::Settings settings;
  double learning_rate;
  const double* control;
  const double* rates;

  KOKKOS_FORCEINLINE_FUNCTION void operator()(const Team& team, std::int64_t a) const {
    once(team, [&]() {
      factors[a] = R::factor(
          settings, step_of(control, rate_of(learning_rate, rates, a), nullptr, UpdateRange{}),
          {norm_of_parts(weight_sums, a, parts), norm_of_parts(other_sums, a, parts), elements[a]});
    });
  }
};

}  // namespace detail

template <class Real>
void element_pass(const Exec& exec, int number, const UpdateArenas<Real>& arenas,
                  const UpdateStep& step, const UpdateRanges& parts) {
  expect_shape(step.control, "control", {control_size});
  detail::visit_pass(step.kind, number, [&]<class Pass>(std::type_identity<Pass>) {
    if constexpr (
        requires { typename Pass::template Function<Real>; } &&
        requires { Pass::template Function<Real>::states; })
      detail::launch_elements<Pass, Real>(exec, arenas, step, parts);
  });
}

void find_factors(const Exec& exec, int number, View1<double> factors,
                  View1<const double> weight_sums, View1<const double> other_sums,
                  View1<const double> elements, std::int64_t parts, const UpdateStep& step) {
  const std::int64_t arrays = extent(factors, 0);
  expect_shape(weight_sums, "weight_sums", {arrays * parts});
  expect_shape(other_sums, "other_sums", {arrays * parts});
  expect_shape(elements, "elements", {arrays});
  expect_shape(step.control, "control", {control_size});
  detail::visit_pass(step.kind, number, [&]<class Pass>(std::type_identity<Pass>) {
    if constexpr (requires { typename Pass::Ratio; })
      for_rows(Pass::Ratio::label, exec, arrays,
               detail::FactorBody<typename Pass::Ratio>{
                   factors.data(), weight_sums.data(), other_sums.data(), elements.data(), parts,
                   step.settings, step.learning_rate, step.control.data(), step.rates.data()});
  });
}

template void element_pass<float>(const Exec&, int, const UpdateArenas<float>&, const UpdateStep&,
                                  const UpdateRanges&);
template void element_pass<double>(const Exec&, int, const UpdateArenas<double>&, const UpdateStep&,
                                   const UpdateRanges&);

}  // namespace trireme::kernels
