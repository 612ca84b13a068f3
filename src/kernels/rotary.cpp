// Rotary positions. Cosines and sines are computed once per row, in double, for all heads.
#include <trireme/kernels/rotary.hpp>

#include <trireme/base/check.hpp>
#include <trireme/kernels/rotary_heads.hpp>
#include <trireme/tensor/expect.hpp>

#include <cmath>

namespace trireme::kernels {
namespace {

/// Positions of the rows, and angles position · f of the pairs i: f is exp(i · step) =
/// theta^(−2i/K), changed by `scaling` (RotaryScaling).
struct Angles {
  double step;
  RotaryScaling scaling;
  std::int64_t sequence;
  std::int64_t first_row;
  layout::TokenPlaces places;
  const std::int32_t* positions;

  explicit Angles(const Rotary& r)
      : step(-2.0 * std::log(r.theta) / static_cast<double>(r.size)),
        scaling(r.scaling),
        sequence(r.sequence),
        first_row(r.first_row),
        places(r.places),
        positions(r.positions.data()) {}

  KOKKOS_FORCEINLINE_FUNCTION double position(std::int64_t t) const {
    return static_cast<double>(positions != nullptr ? positions[t]
                                                    : places.position((first_row + t) % sequence));
  }
  KOKKOS_FORCEINLINE_FUNCTION double angle(double position, std::int64_t i) const {
    const double pair = static_cast<double>(i);
    const double f = fast_exp(pair * step);
    const double r = scaling.start + scaling.per_pair * pair + scaling.per_frequency * f;
    const double limited = r < 0 ? 0 : r > 1 ? 1 : r;
    return position * (f * (1 - limited + limited / scaling.factor));
  }
};

/// Host: computes the cosines and sines of a row's pairs and rotates all heads.
template <class T>
void turn_by_rows(const char* label, const Exec& exec, View2<T> x, const Rotary& rotary,
                  double direction) {
  using Acc = Accumulate<T>;
  constexpr std::int64_t widest = 64;
  const Angles angles(rotary);
  const std::int64_t size = rotary.head_size;
  const std::int64_t half = size / 2;
  const std::int64_t heads = rotary.heads;
  for_rows(
      label, exec, extent(x, 0), KOKKOS_LAMBDA(const Team& team, std::int64_t t) {
        const double position = angles.position(t);
        for (std::int64_t first = 0; first < half; first += widest) {
          const std::int64_t pairs = half - first < widest ? half - first : widest;
          double angle[widest];
          Acc cosine[widest];
          Acc sine[widest];
          for_lanes(team, pairs,
                    [&](std::int64_t i) { angle[i] = angles.angle(position, first + i); });
          for (std::int64_t i = 0; i < pairs; ++i) {
            cosine[i] = static_cast<Acc>(angles.scaling.magnitude * math::cos(angle[i]));
            sine[i] = static_cast<Acc>(angles.scaling.magnitude * direction * math::sin(angle[i]));
          }
          for (std::int64_t h = 0; h < heads; ++h) {
            T* lower = row_of(x, t) + h * size + first;
            T* upper = lower + half;
            for_lanes(team, pairs, [&](std::int64_t i) {
              const Acc a = static_cast<Acc>(lower[i]);
              const Acc b = static_cast<Acc>(upper[i]);
              lower[i] = static_cast<T>(a * cosine[i] - b * sine[i]);
              upper[i] = static_cast<T>(b * cosine[i] + a * sine[i]);
            });
          }
        }
      });
}

/// Pairs of some columns of a head, or of neighbouring columns. Each lane rotates a pair of all
/// heads.
template <class T>
void turn_pairs(const char* label, const Exec& exec, View2<T> x, const Rotary& rotary,
                double direction) {
  using Acc = Accumulate<T>;
  const Angles angles(rotary);
  const std::int64_t half = rotary.size / 2, first = rotary.head_size - rotary.size;
  const std::int64_t step = rotary.interleaved ? 2 : 1, apart = rotary.interleaved ? 1 : half;
  const std::int64_t heads = rotary.heads, columns = rotary.head_size;
  for_rows(
      label, exec, extent(x, 0), KOKKOS_LAMBDA(const Team& team, std::int64_t t) {
        const double position = angles.position(t);
        T* row = row_of(x, t) + first;
        for_lanes(team, half, [&](std::int64_t i) {
          const double angle = angles.angle(position, i);
          const auto cosine = static_cast<Acc>(angles.scaling.magnitude * math::cos(angle));
          const auto sine =
              static_cast<Acc>(angles.scaling.magnitude * direction * math::sin(angle));
          for (std::int64_t h = 0; h < heads; ++h) {
            T& lower = row[h * columns + i * step];
            T& upper = row[h * columns + i * step + apart];
            const Acc a = static_cast<Acc>(lower);
            const Acc b = static_cast<Acc>(upper);
            lower = static_cast<T>(a * cosine - b * sine);
            upper = static_cast<T>(b * cosine + a * sine);
          }
        });
      });
}

/// Device: the team's scratch memory holds the cosines and sines of a row's pairs, and each lane
/// rotates a pack of a head's pairs.
template <class T>
struct TurnByPacks {
  using Acc = Accumulate<T>;
  /// Largest number of pairs that are rotated at a time.
  static constexpr std::int64_t widest = 128;
  static constexpr std::int64_t line = 64;
  static constexpr std::int64_t scratch_bytes =
      2 * widest * static_cast<std::int64_t>(sizeof(Acc)) + line;

  View2<T> x;
  Angles angles;
  std::int64_t size, heads;
  double direction;

  KOKKOS_FUNCTION void operator()(const DevicePolicy::member_type& team) const {
    const std::int64_t t = team.league_rank();
    const double position = angles.position(t);
    const auto scratch = reinterpret_cast<std::uintptr_t>(
        team.team_scratch(0).get_shmem(static_cast<int>(scratch_bytes)));
    Acc* cosine = reinterpret_cast<Acc*>((scratch + line - 1) / line * line);
    Acc* sine = cosine + widest;
    const std::int64_t half = size / 2;
    for (std::int64_t first = 0; first < half; first += widest) {
      const std::int64_t pairs = half - first < widest ? half - first : widest;
      if (first > 0) team.team_barrier();
      for_lanes(team, pairs, [&](std::int64_t i) {
        const double angle = angles.angle(position, first + i);
        cosine[i] = static_cast<Acc>(angles.scaling.magnitude * math::cos(angle));
        sine[i] = static_cast<Acc>(angles.scaling.magnitude * direction * math::sin(angle));
      });
      team.team_barrier();
      detail::turn_heads(team, row_of(x, t) + first, pairs, heads, size, cosine, sine);
    }
  }
};

template <class T>
void turn_by_packs(const char* label, const Exec& exec, View2<T> x, const Rotary& rotary,
                   double direction) {
  const std::int64_t rows = extent(x, 0);
  if (rows == 0) return;
  const TurnByPacks<T> turn{x, Angles(rotary), rotary.head_size, rotary.heads, direction};
  const auto policy =
      DevicePolicy(exec, static_cast<int>(rows), row_threads(exec))
          .set_scratch_size(0, Kokkos::PerTeam(static_cast<int>(turn.scratch_bytes)));
  Kokkos::parallel_for(label, policy, turn);
}

template <class T>
void turn(const char* label, const Exec& exec, View2<T> x, Rotary r, double direction) {
  if (r.size == 0) r.size = r.head_size;
  check(r.size % 2 == 0 && r.size <= r.head_size, "rotary positions of ", r.size,
        " columns of a head of ", r.head_size, ", expected an even number of them");
  check(r.scaling.factor >= 1 && r.scaling.magnitude > 0, "rotary positions with a factor of ",
        r.scaling.factor, " and a magnitude of ", r.scaling.magnitude);
  check(r.theta > 0 && r.sequence >= 1 && r.heads >= 0, "rotary positions with theta ", r.theta,
        ", a sequence of ", r.sequence, " and ", r.heads, " heads");
  check(extent(x, 1) >= r.heads * r.head_size, "view x has ", extent(x, 1),
        " columns, expected at least ", r.heads, " heads of ", r.head_size);
  if (r.positions.data() != nullptr) expect_shape(r.positions, "positions", {extent(x, 0)});
  if (r.heads * r.head_size == 0) return;
  if (r.size < r.head_size || r.interleaved) return turn_pairs<T>(label, exec, x, r, direction);
  if constexpr (exec_on_host)
    turn_by_rows<T>(label, exec, x, r, direction);
  else
    turn_by_packs<T>(label, exec, x, r, direction);
}

}  // namespace

template <class T>
void rotary_forward(const Exec& exec, View2<T> x, const Rotary& rotary) {
  turn<T>("kernels/rotary_forward", exec, x, rotary, 1.0);
}

template <class T>
void rotary_backward(const Exec& exec, View2<T> dx, const Rotary& rotary) {
  turn<T>("kernels/rotary_backward", exec, dx, rotary, -1.0);
}

#define TRIREME_INSTANTIATE(T)                                           \
  template void rotary_forward<T>(const Exec&, View2<T>, const Rotary&); \
  template void rotary_backward<T>(const Exec&, View2<T>, const Rotary&);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(Bf16)
TRIREME_INSTANTIATE(Fp16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
