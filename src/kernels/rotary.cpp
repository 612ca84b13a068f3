#include <trireme/base/check.hpp>
#include <trireme/kernels/lanes.hpp>
#include <trireme/kernels/rotary.hpp>

#include <cmath>

namespace trireme::kernels {
namespace {

/// theta^(−2i/K) = exp(i · step), and where the rows stand.
struct Angles {
  double step;
  std::int64_t sequence;
  std::int64_t first_row;
  std::int64_t first_position;

  explicit Angles(const Rotary& r)
      : step(-2.0 * std::log(r.theta) / static_cast<double>(r.head_size)),
        sequence(r.sequence),
        first_row(r.first_row),
        first_position(r.first_position) {}

  KOKKOS_FORCEINLINE_FUNCTION double position(std::int64_t t) const {
    return static_cast<double>(first_position + (first_row + t) % sequence);
  }
  KOKKOS_FORCEINLINE_FUNCTION double angle(double position, std::int64_t i) const {
    return position * fast_exp(static_cast<double>(i) * step);
  }
};

/// Host: the cosines and sines of a row's pairs, and then all heads with these.
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
            cosine[i] = static_cast<Acc>(math::cos(angle[i]));
            sine[i] = static_cast<Acc>(direction * math::sin(angle[i]));
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

/// Device: a lane for each pair, with all heads.
template <class T>
void turn_by_pairs(const char* label, const Exec& exec, View2<T> x, const Rotary& rotary,
                   double direction) {
  using Acc = Accumulate<T>;
  const Angles angles(rotary);
  const std::int64_t size = rotary.head_size;
  const std::int64_t half = size / 2;
  const std::int64_t heads = rotary.heads;
  for_rows(
      label, exec, extent(x, 0), KOKKOS_LAMBDA(const Team& team, std::int64_t t) {
        const double position = angles.position(t);
        T* row = row_of(x, t);
        for_lanes(team, half, [&](std::int64_t i) {
          const double angle = angles.angle(position, i);
          const Acc cosine = static_cast<Acc>(math::cos(angle));
          const Acc sine = static_cast<Acc>(direction * math::sin(angle));
          for (std::int64_t h = 0; h < heads; ++h) {
            T* lower = row + h * size + i;
            const Acc a = static_cast<Acc>(lower[0]);
            const Acc b = static_cast<Acc>(lower[half]);
            lower[0] = static_cast<T>(a * cosine - b * sine);
            lower[half] = static_cast<T>(b * cosine + a * sine);
          }
        });
      });
}

template <class T>
void turn(const char* label, const Exec& exec, View2<T> x, const Rotary& r, double direction) {
  check(r.head_size % 2 == 0, "rotary positions with head size ", r.head_size,
        ", expected an even one");
  check(r.theta > 0 && r.sequence >= 1 && r.heads >= 0, "rotary positions with theta ", r.theta,
        ", a sequence of ", r.sequence, " and ", r.heads, " heads");
  check(extent(x, 1) >= r.heads * r.head_size, "view x has ", extent(x, 1),
        " columns, expected at least ", r.heads, " heads of ", r.head_size);
  if (r.heads * r.head_size == 0) return;
  if constexpr (exec_on_host)
    turn_by_rows<T>(label, exec, x, r, direction);
  else
    turn_by_pairs<T>(label, exec, x, r, direction);
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
