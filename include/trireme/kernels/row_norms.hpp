#pragma once

#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/packs.hpp>
#include <trireme/kernels/words.hpp>
#include <trireme/tensor/expect.hpp>

#include <cstdint>

/// The forward passes of residual sums and norms for one row. A kernel that fuses a sum and a norm
/// gives the same bits as two separate kernels. On hosts, the functions are not inlined, because a
/// compiler may contract multiplications and additions differently in different places. On devices,
/// a barrier separates the sum from the norm.
namespace trireme::kernels::detail {

/// y = x + keep z / (1 − rate): residual_dropout_forward for row t.
template <class T>
struct ResidualRow {
  using Acc = Accumulate<T>;

  ResidualRow(View2<T> y_, View2<const T> x_, View2<const T> z_, const Dropout& dropout)
      : y(y_),
        x(x_),
        z(z_),
        hidden(extent(x_, 1)),
        site(dropout),
        threshold(static_cast<std::uint32_t>(dropout.rate * 4294967296.0)),
        kept(static_cast<Acc>(1.0 / (1.0 - dropout.rate))),
        drops(dropout.rate > 0) {
    check(dropout.rate >= 0 && dropout.rate < 1, "dropout ", dropout.rate,
          ", expected 0 <= rate < 1");
    expect_shape(y, "y", {extent(x, 0), extent(x, 1)});
    expect_shape(z, "z", {extent(x, 0), extent(x, 1)});
  }

  TRIREME_APART_ON_HOSTS void operator()(const Team& team, std::int64_t t) const {
    const T* x_row = row_of(x, t);
    const T* z_row = row_of(z, t);
    T* y_row = row_of(y, t);
    if (!drops) {
      map_lanes(
          team, hidden, y_row, [](std::int64_t, Acc a, Acc b) { return a + b; }, x_row, z_row);
      return;
    }
    map_words(
        team, site.key, site.row(t) * hidden, hidden, y_row,
        [&](std::int64_t, std::uint32_t word, Acc a, Acc b) {
          const Acc factor = word < threshold ? Acc(0) : kept;
          return a + factor * b;
        },
        x_row, z_row);
  }

  View2<T> y;
  View2<const T> x, z;
  std::int64_t hidden;
  Dropout site;
  std::uint32_t threshold;
  Acc kept;
  bool drops;
};

template <class T>
struct LayerNormRow {
  using Acc = Accumulate<T>;

  LayerNormRow(View2<T> y_, View1<Acc> mean_, View1<Acc> inverse_std_, View2<const T> x_,
               View1<const T> gain_, View1<const T> bias_, double epsilon)
      : y(y_),
        mean(mean_),
        inverse_std(inverse_std_),
        x(x_),
        gain(gain_),
        bias(bias_),
        hidden(extent(x_, 1)),
        eps(static_cast<Acc>(epsilon)) {
    const std::int64_t rows = extent(x, 0);
    expect_shape(y, "y", {rows, hidden});
    expect_shape(mean, "mean", {rows});
    expect_shape(inverse_std, "inverse_std", {rows});
    expect_shape(gain, "gain", {hidden});
    expect_shape(bias, "bias", {hidden});
  }

  TRIREME_APART_ON_HOSTS void operator()(const Team& team, std::int64_t t) const {
    const Acc one_over_hidden = Acc(1) / static_cast<Acc>(hidden);
    const T* x_row = row_of(x, t);
    T* y_row = row_of(y, t);
    const T* g = gain.data();
    const T* b = bias.data();
    const Acc mu = sum_of<Acc>(
                       team, hidden, [](std::int64_t, Acc v) { return v; }, x_row) *
                   one_over_hidden;
    // The second pass reads cached data, and avoids the cancellation of <x²> − <x>².
    const Acc variance = sum_of<Acc>(
                             team, hidden,
                             [&](std::int64_t, Acc v) {
                               const Acc centred = v - mu;
                               return centred * centred;
                             },
                             x_row) *
                         one_over_hidden;
    const Acc inverse = Acc(1) / math::sqrt(variance + eps);
    once(team, [&]() {
      mean(t) = mu;
      inverse_std(t) = inverse;
    });
    map_lanes(
        team, hidden, y_row,
        [&](std::int64_t, Acc v, Acc scale, Acc shift) {
          return (v - mu) * inverse * scale + shift;
        },
        x_row, g, b);
  }

  View2<T> y;
  View1<Acc> mean, inverse_std;
  View2<const T> x;
  View1<const T> gain, bias;
  std::int64_t hidden;
  Acc eps;
};

template <class T>
struct RmsNormRow {
  using Acc = Accumulate<T>;

  RmsNormRow(View2<T> y_, View1<Acc> inverse_rms_, View2<const T> x_, View1<const T> gain_,
             double gain_offset, double epsilon)
      : y(y_),
        inverse_rms(inverse_rms_),
        x(x_),
        gain(gain_),
        hidden(extent(x_, 1)),
        offset(static_cast<Acc>(gain_offset)),
        eps(static_cast<Acc>(epsilon)) {
    const std::int64_t rows = extent(x, 0);
    expect_shape(y, "y", {rows, hidden});
    expect_shape(inverse_rms, "inverse_rms", {rows});
    expect_shape(gain, "gain", {hidden});
  }

  TRIREME_APART_ON_HOSTS void operator()(const Team& team, std::int64_t t) const {
    const T* x_row = row_of(x, t);
    T* y_row = row_of(y, t);
    const T* g = gain.data();
    const Acc square = sum_of<Acc>(
                           team, hidden, [](std::int64_t, Acc v) { return v * v; }, x_row) *
                       (Acc(1) / static_cast<Acc>(hidden));
    const Acc inverse = Acc(1) / math::sqrt(square + eps);
    once(team, [&]() { inverse_rms(t) = inverse; });
    map_lanes(
        team, hidden, y_row,
        [&](std::int64_t, Acc v, Acc scale) { return v * inverse * (offset + scale); }, x_row, g);
  }

  View2<T> y;
  View1<Acc> inverse_rms;
  View2<const T> x;
  View1<const T> gain;
  std::int64_t hidden;
  Acc offset;
  Acc eps;
};

/// A residual sum and its norm for row t.
template <class Residual, class Norm>
struct ResidualNormRow {
  KOKKOS_FORCEINLINE_FUNCTION void operator()(const Team& team, std::int64_t t) const {
    residual(team, t);
    team.team_barrier();
    norm(team, t);
  }

  Residual residual;
  Norm norm;
};

}  // namespace trireme::kernels::detail
