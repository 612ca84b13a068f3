// Elementwise kernels: GELU, tanh, SwiGLU, GeGLU, dropout, residual sums, scaling, fills, copies
// and conversions. On devices, each kernel processes aligned rows or chunks in packs (packs.hpp).
#include <trireme/kernels/elementwise.hpp>

#include <trireme/base/check.hpp>
#include <trireme/kernels/erf.hpp>
#include <trireme/kernels/packs.hpp>
#include <trireme/kernels/row_norms.hpp>
#include <trireme/kernels/words.hpp>
#include <trireme/tensor/expect.hpp>

namespace trireme::kernels {

namespace {

/// sqrt(2/pi) and the cubic coefficient of the tanh form of GELU.
constexpr double gelu_scale = 0.79788456080286535588;
constexpr double gelu_cubic = 0.044715;

constexpr double quick_scale = 1.702;
constexpr double half_root = 0.70710678118654752440;       // sqrt(1/2)
constexpr double normal_density = 0.39894228040143267794;  // 1 / sqrt(2 pi)

/// GELU by the hyperbolic tangent.
struct GeluTanh {
  template <class Acc>
  static KOKKOS_FORCEINLINE_FUNCTION Acc value(Acc v) {
    const Acc inner =
        static_cast<Acc>(gelu_scale) * v * (Acc(1) + static_cast<Acc>(gelu_cubic) * v * v);
    return static_cast<Acc>(0.5) * v * (Acc(1) + fast_tanh(inner));
  }
  /// With u = s (v + c v^3): gelu' = (1 + tanh u)/2 + v/2 (1 - tanh^2 u) s (1 + 3 c v^2).
  template <class Acc>
  static KOKKOS_FORCEINLINE_FUNCTION Acc derivative(Acc v) {
    const Acc square = static_cast<Acc>(gelu_cubic) * v * v;
    const Acc tanh_u = fast_tanh(static_cast<Acc>(gelu_scale) * v * (Acc(1) + square));
    const Acc slope = static_cast<Acc>(gelu_scale) * (Acc(1) + Acc(3) * square);
    return static_cast<Acc>(0.5) * ((Acc(1) + tanh_u) * (Acc(1) + v * (Acc(1) - tanh_u) * slope));
  }
};

/// GELU by the error function: v times the normal distribution function of v.
struct GeluExact {
  template <class Acc>
  static KOKKOS_FORCEINLINE_FUNCTION Acc distribution(Acc v) {
    return static_cast<Acc>(0.5) * (Acc(1) + fast_erf(v * static_cast<Acc>(half_root)));
  }
  template <class Acc>
  static KOKKOS_FORCEINLINE_FUNCTION Acc value(Acc v) {
    return v * distribution(v);
  }
  /// gelu' = Phi(v) + v phi(v), phi(v) = e^(-v^2/2) / sqrt(2 pi).
  template <class Acc>
  static KOKKOS_FORCEINLINE_FUNCTION Acc derivative(Acc v) {
    const Acc density = static_cast<Acc>(normal_density) * fast_exp(static_cast<Acc>(-0.5) * v * v);
    return distribution(v) + v * density;
  }
};

/// GELU by the logistic function: v sigma(1.702 v).
struct GeluQuick {
  template <class Acc>
  static KOKKOS_FORCEINLINE_FUNCTION Acc logistic(Acc v) {
    return Acc(1) / (Acc(1) + fast_exp(static_cast<Acc>(-quick_scale) * v));
  }
  template <class Acc>
  static KOKKOS_FORCEINLINE_FUNCTION Acc value(Acc v) {
    return v * logistic(v);
  }
  template <class Acc>
  static KOKKOS_FORCEINLINE_FUNCTION Acc derivative(Acc v) {
    const Acc s = logistic(v);
    return s * (Acc(1) + static_cast<Acc>(quick_scale) * v * (Acc(1) - s));
  }
};

/// Calls use(GeluTanh()), use(GeluExact()) or use(GeluQuick()).
template <class Use>
void with_form(Gelu form, const Use& use) {
  switch (form) {
    case Gelu::tanh:
      return use(GeluTanh());
    case Gelu::exact:
      return use(GeluExact());
    case Gelu::quick:
      return use(GeluQuick());
  }
}

struct Relu {
  template <class A>
  KOKKOS_FORCEINLINE_FUNCTION static A value(A v) {
    return v > A(0) ? v : A(0);
  }
  template <class A>
  KOKKOS_FORCEINLINE_FUNCTION static A derivative(A v) {
    return v > A(0) ? A(1) : A(0);
  }
};

template <class Form, class T>
void activation_values(const char* label, const Exec& exec, View2<T> g, View2<const T> h) {
  using Acc = Accumulate<T>;
  const std::int64_t columns = extent(h, 1);
  for_rows(
      label, exec, extent(h, 0), KOKKOS_LAMBDA(const Team& team, std::int64_t t) {
        const T* h_row = row_of(h, t);
        T* g_row = row_of(g, t);
        map_lanes(
            team, columns, g_row, [](std::int64_t, Acc v) { return Form::value(v); }, h_row);
      });
}

template <class Form, class T>
void activation_gradients(const char* label, const Exec& exec, View2<T> dh, View2<const T> dg,
                          View2<const T> h) {
  using Acc = Accumulate<T>;
  const std::int64_t columns = extent(h, 1);
  for_rows(
      label, exec, extent(h, 0), KOKKOS_LAMBDA(const Team& team, std::int64_t t) {
        const T* h_row = row_of(h, t);
        const T* dg_row = row_of(dg, t);
        T* dh_row = row_of(dh, t);
        map_lanes(
            team, columns, dh_row,
            [](std::int64_t, Acc d, Acc v) { return d * Form::derivative(v); }, dg_row, h_row);
      });
}

}  // namespace

template <class T>
void gelu_forward(const Exec& exec, View2<T> g, View2<const T> h, Gelu form) {
  expect_shape(g, "g", {extent(h, 0), extent(h, 1)});
  with_form(form, [&]<class Form>(Form) {
    activation_values<Form, T>("kernels/gelu_forward", exec, g, h);
  });
}

template <class T>
void gelu_backward(const Exec& exec, View2<T> dh, View2<const T> dg, View2<const T> h, Gelu form) {
  expect_shape(dh, "dh", {extent(h, 0), extent(h, 1)});
  expect_shape(dg, "dg", {extent(h, 0), extent(h, 1)});
  with_form(form, [&]<class Form>(Form) {
    activation_gradients<Form, T>("kernels/gelu_backward", exec, dh, dg, h);
  });
}

template <class T>
void relu_forward(const Exec& exec, View2<T> g, View2<const T> h) {
  expect_shape(g, "g", {extent(h, 0), extent(h, 1)});
  activation_values<Relu, T>("kernels/relu_forward", exec, g, h);
}

template <class T>
void relu_backward(const Exec& exec, View2<T> dh, View2<const T> dg, View2<const T> h) {
  expect_shape(dh, "dh", {extent(h, 0), extent(h, 1)});
  expect_shape(dg, "dg", {extent(h, 0), extent(h, 1)});
  activation_gradients<Relu, T>("kernels/relu_backward", exec, dh, dg, h);
}

template <class T>
void tanh_forward(const Exec& exec, View2<T> y, View2<const T> x) {
  const std::int64_t columns = extent(x, 1);
  expect_shape(y, "y", {extent(x, 0), columns});
  for_rows(
      "kernels/tanh_forward", exec, extent(x, 0), KOKKOS_LAMBDA(const Team& team, std::int64_t t) {
        const T* x_row = row_of(x, t);
        T* y_row = row_of(y, t);
        map_lanes(
            team, columns, y_row, [](std::int64_t, Accumulate<T> v) { return fast_tanh(v); },
            x_row);
      });
}

template <class T>
void tanh_backward(const Exec& exec, View2<T> dx, View2<const T> dy, View2<const T> y) {
  using Acc = Accumulate<T>;
  const std::int64_t columns = extent(y, 1);
  expect_shape(dx, "dx", {extent(y, 0), columns});
  expect_shape(dy, "dy", {extent(y, 0), columns});
  for_rows(
      "kernels/tanh_backward", exec, extent(y, 0), KOKKOS_LAMBDA(const Team& team, std::int64_t t) {
        const T* y_row = row_of(y, t);
        const T* dy_row = row_of(dy, t);
        T* dx_row = row_of(dx, t);
        map_lanes(
            team, columns, dx_row,
            [](std::int64_t, Acc d, Acc v) { return d * ((Acc(1) - v) * (Acc(1) + v)); }, dy_row,
            y_row);
      });
}

template <class T>
void swiglu_forward(const Exec& exec, View2<T> g, View2<const T> h) {
  using Acc = Accumulate<T>;
  const std::int64_t columns = extent(g, 1);
  expect_shape(h, "h", {extent(g, 0), 2 * columns});
  for_rows(
      "kernels/swiglu_forward", exec, extent(g, 0),
      KOKKOS_LAMBDA(const Team& team, std::int64_t t) {
        const T* gate = row_of(h, t);
        const T* up = gate + columns;
        T* g_row = row_of(g, t);
        map_lanes(
            team, columns, g_row,
            [](std::int64_t, Acc a, Acc b) { return a / (Acc(1) + fast_exp(-a)) * b; }, gate, up);
      });
}

template <class T>
void swiglu_backward(const Exec& exec, View2<T> dh, View2<const T> dg, View2<const T> h) {
  using Acc = Accumulate<T>;
  const std::int64_t columns = extent(dg, 1);
  expect_shape(dh, "dh", {extent(dg, 0), 2 * columns});
  expect_shape(h, "h", {extent(dg, 0), 2 * columns});
  for_rows(
      "kernels/swiglu_backward", exec, extent(dg, 0),
      KOKKOS_LAMBDA(const Team& team, std::int64_t t) {
        const T* gate = row_of(h, t);
        const T* up = gate + columns;
        const T* dg_row = row_of(dg, t);
        T* dgate = row_of(dh, t);
        T* dup = dgate + columns;
        map_lanes_to_two(
            team, columns, dgate, dup,
            [](std::int64_t, Acc a, Acc b, Acc d) {
              // With s = 1 / (1 + e^-a): silu' = s (1 + a (1 - s)).
              const Acc s = Acc(1) / (Acc(1) + fast_exp(-a));
              return Two<Acc>{d * b * (s * (Acc(1) + a * (Acc(1) - s))), d * (a * s)};
            },
            gate, up, dg_row);
      });
}

namespace {

template <class A>
KOKKOS_FORCEINLINE_FUNCTION A clamped(A x, A least, A most) {
  return x < least ? least : x > most ? most : x;
}

}  // namespace

template <class T>
void clamped_swiglu_forward(const Exec& exec, View2<T> g, View2<const T> h, double limit) {
  using Acc = Accumulate<T>;
  const std::int64_t columns = extent(g, 1);
  const auto most = static_cast<Acc>(limit);
  expect_shape(h, "h", {extent(g, 0), 2 * columns});
  for_rows(
      "kernels/clamped_swiglu_forward", exec, extent(g, 0),
      KOKKOS_LAMBDA(const Team& team, std::int64_t t) {
        const T* gate = row_of(h, t);
        const T* up = gate + columns;
        map_lanes(
            team, columns, row_of(g, t),
            [=](std::int64_t, Acc a, Acc b) {
              const Acc x = a > most ? most : a;
              return x / (Acc(1) + fast_exp(Acc(-quick_scale) * x)) *
                     (clamped(b, -most, most) + Acc(1));
            },
            gate, up);
      });
}

template <class T>
void clamped_swiglu_backward(const Exec& exec, View2<T> dh, View2<const T> dg, View2<const T> h,
                             double limit) {
  using Acc = Accumulate<T>;
  const std::int64_t columns = extent(dg, 1);
  const auto most = static_cast<Acc>(limit);
  expect_shape(dh, "dh", {extent(dg, 0), 2 * columns});
  expect_shape(h, "h", {extent(dg, 0), 2 * columns});
  for_rows(
      "kernels/clamped_swiglu_backward", exec, extent(dg, 0),
      KOKKOS_LAMBDA(const Team& team, std::int64_t t) {
        const T* gate = row_of(h, t);
        const T* up = gate + columns;
        T* dgate = row_of(dh, t);
        T* dup = dgate + columns;
        map_lanes_to_two(
            team, columns, dgate, dup,
            [=](std::int64_t, Acc a, Acc b, Acc d) {
              const Acc x = a > most ? most : a;
              const Acc s = Acc(1) / (Acc(1) + fast_exp(Acc(-quick_scale) * x));
              const Acc slope = s * (Acc(1) + Acc(quick_scale) * x * (Acc(1) - s));
              const Acc of_gate = d * (clamped(b, -most, most) + Acc(1)) * slope;
              return Two<Acc>{a > most ? Acc(0) : of_gate,
                              b > most || b < -most ? Acc(0) : d * (x * s)};
            },
            gate, up, row_of(dg, t));
      });
}

namespace {

template <class Form, class T>
void geglu_values(const Exec& exec, View2<T> g, View2<const T> h) {
  using Acc = Accumulate<T>;
  const std::int64_t columns = extent(g, 1);
  for_rows(
      "kernels/geglu_forward", exec, extent(g, 0), KOKKOS_LAMBDA(const Team& team, std::int64_t t) {
        const T* gate = row_of(h, t);
        const T* up = gate + columns;
        map_lanes(
            team, columns, row_of(g, t),
            [](std::int64_t, Acc a, Acc b) { return Form::value(a) * b; }, gate, up);
      });
}

template <class Form, class T>
void geglu_gradients(const Exec& exec, View2<T> dh, View2<const T> dg, View2<const T> h) {
  using Acc = Accumulate<T>;
  const std::int64_t columns = extent(dg, 1);
  for_rows(
      "kernels/geglu_backward", exec, extent(dg, 0),
      KOKKOS_LAMBDA(const Team& team, std::int64_t t) {
        const T* gate = row_of(h, t);
        const T* up = gate + columns;
        const T* dg_row = row_of(dg, t);
        T* dgate = row_of(dh, t);
        T* dup = dgate + columns;
        map_lanes_to_two(
            team, columns, dgate, dup,
            [](std::int64_t, Acc a, Acc b, Acc d) {
              return Two<Acc>{d * b * Form::derivative(a), d * Form::value(a)};
            },
            gate, up, dg_row);
      });
}

}  // namespace

template <class T>
void geglu_forward(const Exec& exec, View2<T> g, View2<const T> h, Gelu form) {
  expect_shape(h, "h", {extent(g, 0), 2 * extent(g, 1)});
  with_form(form, [&]<class Form>(Form) { geglu_values<Form, T>(exec, g, h); });
}

template <class T>
void geglu_backward(const Exec& exec, View2<T> dh, View2<const T> dg, View2<const T> h, Gelu form) {
  expect_shape(dh, "dh", {extent(dg, 0), 2 * extent(dg, 1)});
  expect_shape(h, "h", {extent(dg, 0), 2 * extent(dg, 1)});
  with_form(form, [&]<class Form>(Form) { geglu_gradients<Form, T>(exec, dh, dg, h); });
}

namespace {

/// y = keep x / (1 - rate), keep = 0 for dropped elements, otherwise 1. With rate 0, y = x.
template <class T>
void drop(const char* label, const Exec& exec, View2<T> y, View2<const T> x,
          const Dropout& dropout) {
  const std::int64_t rows = extent(x, 0);
  const std::int64_t hidden = extent(x, 1);
  if (dropout.rate == 0) {
    if (y.data() == x.data()) return;
    for_rows(
        label, exec, rows, KOKKOS_LAMBDA(const Team& team, std::int64_t t) {
          const T* x_row = row_of(x, t);
          T* y_row = row_of(y, t);
          copy_lanes(team, hidden, y_row, x_row);
        });
    return;
  }
  using Acc = Accumulate<T>;
  const Dropout rows_of = dropout;
  const std::int64_t columns = dropout.columns > 0 ? dropout.columns : hidden;
  const std::int64_t first = dropout.first_column;
  const auto threshold = static_cast<std::uint32_t>(dropout.rate * 4294967296.0);
  const Acc kept = static_cast<Acc>(1.0 / (1.0 - dropout.rate));
  for_rows(
      label, exec, rows, KOKKOS_LAMBDA(const Team& team, std::int64_t t) {
        const T* x_row = row_of(x, t);
        T* y_row = row_of(y, t);
        map_words(
            team, rows_of.key, rows_of.row(t) * columns + first, hidden, y_row,
            [&](std::int64_t, std::uint32_t word, Acc v) {
              const Acc factor = word < threshold ? Acc(0) : kept;
              return factor * v;
            },
            x_row);
      });
}

void expect_rate(const Dropout& dropout) {
  check(dropout.rate >= 0 && dropout.rate < 1, "dropout rate ", dropout.rate,
        ", expected 0 <= rate < 1");
}

}  // namespace

template <class T>
void residual_dropout_forward(const Exec& exec, View2<T> y, View2<const T> x, View2<const T> z,
                              const Dropout& dropout) {
  for_rows("kernels/residual_dropout_forward", exec, extent(x, 0),
           detail::ResidualRow<T>(y, x, z, dropout));
}

template <class T>
void dropout_forward(const Exec& exec, View2<T> y, View2<const T> x, const Dropout& dropout) {
  expect_shape(y, "y", {extent(x, 0), extent(x, 1)});
  expect_rate(dropout);
  drop<T>("kernels/dropout_forward", exec, y, x, dropout);
}

template <class T>
void dropout_backward(const Exec& exec, View2<T> dz, View2<const T> dy, const Dropout& dropout) {
  expect_shape(dz, "dz", {extent(dy, 0), extent(dy, 1)});
  expect_rate(dropout);
  drop<T>("kernels/dropout_backward", exec, dz, dy, dropout);
}

template <class T>
void accumulate(const Exec& exec, View1<T> y, View1<const T> x) {
  const std::int64_t n = extent(y, 0);
  expect_shape(x, "x", {n});
  for_chunks(
      "kernels/accumulate", exec, n,
      KOKKOS_LAMBDA(const Team& team, std::int64_t first, std::int64_t count) {
        const T* from = x.data() + first;
        T* to = y.data() + first;
        map_lanes(
            team, count, to, [](std::int64_t, Accumulate<T> a, Accumulate<T> b) { return a + b; },
            to, from);
      });
}

template <class T>
void scale(const Exec& exec, View1<T> y, double factor) {
  const auto by = static_cast<Accumulate<T>>(factor);
  for_chunks(
      "kernels/scale", exec, extent(y, 0),
      KOKKOS_LAMBDA(const Team& team, std::int64_t first, std::int64_t count) {
        T* to = y.data() + first;
        map_lanes(
            team, count, to, [&](std::int64_t, Accumulate<T> v) { return by * v; }, to);
      });
}

template <class T>
void fill(const Exec& exec, View1<T> y, double value) {
  const T constant = static_cast<T>(value);
  for_chunks(
      "kernels/fill", exec, extent(y, 0),
      KOKKOS_LAMBDA(const Team& team, std::int64_t first, std::int64_t count) {
        T* to = y.data() + first;
        map_lanes(team, count, to, [&](std::int64_t) { return constant; });
      });
}

template <class T>
void copy(const Exec& exec, View1<T> y, View1<const T> x) {
  const std::int64_t n = extent(y, 0);
  expect_shape(x, "x", {n});
  for_chunks(
      "kernels/copy", exec, n,
      KOKKOS_LAMBDA(const Team& team, std::int64_t first, std::int64_t count) {
        const T* from = x.data() + first;
        T* to = y.data() + first;
        copy_lanes(team, count, to, from);
      });
}

template <class T, class U>
void convert(const Exec& exec, View1<T> y, View1<const U> x) {
  const std::int64_t n = extent(y, 0);
  expect_shape(x, "x", {n});
  for_chunks(
      "kernels/convert", exec, n,
      KOKKOS_LAMBDA(const Team& team, std::int64_t first, std::int64_t count) {
        const U* from = x.data() + first;
        T* to = y.data() + first;
        map_lanes(
            team, count, to, [](std::int64_t, Accumulate<U> v) { return v; }, from);
      });
}

template void convert<Bf16, float>(const Exec&, View1<Bf16>, View1<const float>);
template void convert<Fp16, float>(const Exec&, View1<Fp16>, View1<const float>);
template void convert<float, Bf16>(const Exec&, View1<float>, View1<const Bf16>);
template void convert<float, Fp16>(const Exec&, View1<float>, View1<const Fp16>);

#define TRIREME_INSTANTIATE(T)                                                                     \
  template void gelu_forward<T>(const Exec&, View2<T>, View2<const T>, Gelu);                      \
  template void gelu_backward<T>(const Exec&, View2<T>, View2<const T>, View2<const T>, Gelu);     \
  template void relu_forward<T>(const Exec&, View2<T>, View2<const T>);                            \
  template void relu_backward<T>(const Exec&, View2<T>, View2<const T>, View2<const T>);           \
  template void tanh_forward<T>(const Exec&, View2<T>, View2<const T>);                            \
  template void tanh_backward<T>(const Exec&, View2<T>, View2<const T>, View2<const T>);           \
  template void swiglu_forward<T>(const Exec&, View2<T>, View2<const T>);                          \
  template void swiglu_backward<T>(const Exec&, View2<T>, View2<const T>, View2<const T>);         \
  template void clamped_swiglu_forward<T>(const Exec&, View2<T>, View2<const T>, double);          \
  template void clamped_swiglu_backward<T>(const Exec&, View2<T>, View2<const T>, View2<const T>,  \
                                           double);                                                \
  template void geglu_forward<T>(const Exec&, View2<T>, View2<const T>, Gelu);                     \
  template void geglu_backward<T>(const Exec&, View2<T>, View2<const T>, View2<const T>, Gelu);    \
  template void residual_dropout_forward<T>(const Exec&, View2<T>, View2<const T>, View2<const T>, \
                                            const Dropout&);                                       \
  template void dropout_forward<T>(const Exec&, View2<T>, View2<const T>, const Dropout&);         \
  template void dropout_backward<T>(const Exec&, View2<T>, View2<const T>, const Dropout&);        \
  template void accumulate<T>(const Exec&, View1<T>, View1<const T>);                              \
  template void scale<T>(const Exec&, View1<T>, double);                                           \
  template void fill<T>(const Exec&, View1<T>, double);                                            \
  template void copy<T>(const Exec&, View1<T>, View1<const T>);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(Bf16)
TRIREME_INSTANTIATE(Fp16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
