// Rounding of tensors to fp8, scales from their maxima, products of fp8 values by cuBLASLt or in
// fp32, and the passes of a linear layer. fp8_product computes only a bᵀ, so that the gradients
// need transposed codes.
#include <trireme/kernels/fp8.hpp>

#include <trireme/base/check.hpp>
#include <trireme/kernels/cublaslt.hpp>
#include <trireme/kernels/matmul_product.hpp>
#include <trireme/kernels/packs.hpp>
#include <trireme/tensor/expect.hpp>
#include <trireme/tensor/region.hpp>

namespace trireme::kernels {
namespace {

constexpr std::int64_t unit = 16;  // divisor of all sizes, as cuBLASLt requires

template <class View>
void expect_units(const View& x) {
  check(extent(x, 0) % unit == 0 && extent(x, 1) % unit == 0 &&
            static_cast<std::int64_t>(x.stride(0)) % 8 == 0,
        "fp8 needs rows and columns in multiples of ", unit, ", got ", extent(x, 0), " × ",
        extent(x, 1));
}

/// Largest |x[i]|, i in [0, n); NaNs are ignored.
template <class Member>
KOKKOS_FUNCTION float largest_magnitude(const Member& team, std::int64_t n, const Bf16* x) {
  const auto magnitude = [](float value) { return value < 0 ? -value : value; };
  if constexpr (exec_on_host) {
    return max_lanes<float>(team, n, [&](std::int64_t i) { return magnitude(x[i]); });
  } else {
    constexpr int width = 8;
    const auto* packs = reinterpret_cast<const detail::Pack<Bf16, width>*>(x);
    return max_lanes<float>(team, n / width, [&](std::int64_t p) {
      const auto pack = packs[p];
      float largest = 0;
      for (const Bf16 value : pack.values)
        largest = magnitude(value) > largest ? magnitude(value) : largest;
      return largest;
    });
  }
}

template <class F>
struct QuantizeRow {
  View2<F> codes;
  View2<const Bf16> x;
  Fp8Scale scale;

  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t row) const {
    const auto n = static_cast<std::int64_t>(x.extent(1));
    const Bf16* from = row_of(x, row);
    if (scale.maximum != nullptr) {
      const float largest = largest_magnitude(team, n, from);
      float* const maximum = scale.maximum;
      once(team, [&]() {  // a stale *maximum only costs an unneeded atomic
        if (largest > *maximum) Kokkos::atomic_fetch_max(maximum, largest);
      });
    }
    const float factor = *scale.scale;
    map_lanes(
        team, n, row_of(codes, row), [factor](std::int64_t, float value) { return factor * value; },
        from);
  }
};

using TilePolicy = Kokkos::TeamPolicy<Exec, LightKernel>;

/// Rounds and transposes square tiles in scratch memory, so that accesses to rows have 16 bytes.
template <class F>
struct QuantizeTile {
  static constexpr int side = 64;
  static constexpr int pitch = side + 4;  ///< consecutive rows of a column are in different banks
  static constexpr int read = 8;          ///< values read at a time
  static constexpr int written = 16;

  F* codes;
  const Bf16* x;
  std::int64_t stride, rows, columns;
  const float* scale;

  KOKKOS_FUNCTION void operator()(const TilePolicy::member_type& team) const {
    using In = detail::Pack<Bf16, read>;
    using Out = detail::Pack<F, written>;
    F* const tile = static_cast<F*>(team.team_shmem().get_shmem(side * pitch));
    const std::int64_t across = (columns + side - 1) / side;
    const std::int64_t row = team.league_rank() / across * side;
    const std::int64_t column = team.league_rank() % across * side;
    const auto height = static_cast<int>(rows - row < side ? rows - row : side);
    const auto width = static_cast<int>(columns - column < side ? columns - column : side);
    const float factor = *scale;
    const int in_row = width / read;
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, height * in_row), [&](int i) {
      const int r = i / in_row, c = i % in_row * read;
      const In in = *reinterpret_cast<const In*>(x + (row + r) * stride + column + c);
      for (int k = 0; k < read; ++k)
        tile[r * pitch + c + k] = F(factor * static_cast<float>(in.values[k]));
    });
    team.team_barrier();
    const int in_column = height / written;
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, width * in_column), [&](int i) {
      const int c = i / in_column, r = i % in_column * written;
      Out out;
      for (int k = 0; k < written; ++k) out.values[k] = tile[(r + k) * pitch + c];
      *reinterpret_cast<Out*>(codes + (column + c) * rows + row + r) = out;
    });
  }
};

}  // namespace

template <class F>
void fp8_quantize(const Exec& exec, View2<F> codes, View2<const Bf16> x, const Fp8Scale& scale) {
  expect_units(x);
  expect_shape(codes, "codes", {extent(x, 0), extent(x, 1)});
  for_rows("kernels/fp8_quantize", exec, extent(x, 0), QuantizeRow<F>{codes, x, scale});
}

template <class F>
void fp8_quantize_transposed(const Exec& exec, View2<F> codes, View2<const Bf16> x,
                             const Fp8Scale& scale) {
  expect_units(x);
  expect_shape(codes, "codes", {extent(x, 1), extent(x, 0)});
  using Tile = QuantizeTile<F>;
  const auto tiles = [](std::int64_t n) {
    return static_cast<int>((n + Tile::side - 1) / Tile::side);
  };
  const int teams = tiles(extent(x, 0)) * tiles(extent(x, 1));
  if (teams == 0) return;
  TilePolicy policy(exec, teams, team_threads(exec));
  policy.set_scratch_size(0, Kokkos::PerTeam(Tile::side * Tile::pitch));
  Kokkos::parallel_for("kernels/fp8_quantize_transposed", policy,
                       Tile{codes.data(), x.data(), static_cast<std::int64_t>(x.stride(0)),
                            extent(x, 0), extent(x, 1), scale.scale});
}

void record_fp8_maxima(const Exec& exec, View2<float> history, std::int64_t row,
                       View1<float> maxima) {
  expect_shape(maxima, "maxima", {extent(history, 1)});
  Kokkos::parallel_for(
      "kernels/record_fp8_maxima", HostPolicy(exec, 0, extent(maxima, 0)),
      KOKKOS_LAMBDA(std::int64_t t) {
        const float found = maxima(t);
        history(row, t) = found < infinity<float> ? found : 0.0F;
        maxima(t) = 0;
      });
}

void find_fp8_scales(const Exec& exec, View1<float> scales, View2<float> inverses,
                     View2<const float> history, const Fp8Rule& rule) {
  const std::int64_t rows = extent(history, 0);
  expect_shape(scales, "scales", {extent(history, 1)});
  expect_shape(inverses, "inverses", {extent(history, 1), extent(inverses, 1)});
  check(extent(inverses, 1) >= 1, "inverse scales without a column");
  const std::int64_t newest = rule.newest;
  const int gradient_exponent = rule.gradient_exponent;
  const bool largest = rule.algorithm == Fp8Algorithm::max;
  Kokkos::parallel_for(
      "kernels/find_fp8_scales", HostPolicy(exec, 0, extent(scales, 0)),
      KOKKOS_LAMBDA(std::int64_t t) {
        const bool gradient = t % 3 == 2;
        float maximum = 0;
        for (std::int64_t age = 0; age < rows; ++age) {
          const float value = history((newest - age + rows) % rows, t);
          maximum = value > maximum ? value : maximum;
          if (!largest && maximum > 0) break;
        }
        int exponent = gradient ? gradient_exponent : 0;
        if (maximum > 0)
          exponent = fp8_scale_exponent(maximum,
                                        gradient ? E5M2::largest_exponent : E4M3::largest_exponent);
        scales(t) = power_of_two(exponent);
        inverses(t, 0) = power_of_two(-exponent);
      });
}

std::string fp8_obstacle([[maybe_unused]] const Exec& exec) {
#if defined(KOKKOS_ENABLE_CUDA)
  if constexpr (std::is_same_v<Exec, Kokkos::Cuda>) {
    const auto& device = exec.cuda_device_prop();
    if (10 * device.major + device.minor < 89)
      return text("the device ", device.name, " is sm_", device.major, device.minor,
                  ", and products of fp8 need sm_89 or newer");
  }
#endif
  return "";
}

namespace {

template <class F>
constexpr LtFp8 fp8_library_type = std::is_same_v<F, E4M3> ? LtFp8::e4m3 : LtFp8::e5m2;

/// The codes of both operands of a product, stored one after the other in fp8.codes.
template <class A, class B>
struct Codes {
  View2<A> a;
  View2<B> b;

  Codes(const Fp8Linear& fp8, std::int64_t a_rows, std::int64_t b_rows, std::int64_t depth)
      : a(reinterpret_cast<A*>(fp8.codes), size(a_rows), size(depth)),
        b(reinterpret_cast<B*>(fp8.codes + fp8_operand_bytes(a_rows * depth)), size(b_rows),
          size(depth)) {}
  static std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }
};

template <class A, class B, class C>
LtProduct library_product(View2<C> c, View2<const A> a, const Fp8Scale& of_a, View2<const B> b,
                          const Fp8Scale& of_b, double beta, View1<const C> bias) {
  LtProduct p;
  p.fp8_a = fp8_library_type<A>;
  p.fp8_b = fp8_library_type<B>;
  p.scale_a = of_a.inverse;
  p.scale_b = of_b.inverse;
  p.output = dtype_of<C>;
  p.transposed_b = true;
  p.rows = extent(c, 0);
  p.columns = extent(c, 1);
  p.depth = extent(a, 1);
  p.a = a.data();
  p.b = b.data();
  p.c = c.data();
  p.stride_a = p.stride_b = p.depth;
  p.stride_c = static_cast<std::int64_t>(c.stride(0));
  p.beta = beta;
  p.bias = bias.data();
  if (p.bias != nullptr) p.epilogue = LtEpilogue::bias;
  return p;
}

}  // namespace

template <class A, class B, class C>
void fp8_product(const Handle& handle, View2<C> c, View2<const A> a, const Fp8Scale& of_a,
                 View2<const B> b, const Fp8Scale& of_b, double beta, View1<const C> bias) {
  expect_shape(c, "c", {extent(a, 0), extent(b, 0)});
  expect_shape(b, "b", {extent(c, 1), extent(a, 1)});
  const bool adds_bias = bias.data() != nullptr && bias.extent(0) > 0;
  if (adds_bias) expect_shape(bias, "bias", {extent(c, 1)});
  check(!adds_bias || (std::is_same_v<C, Bf16> && beta == 0),
        "an fp8 product adds a bias only to a new bf16 result");
  if (c.extent(0) == 0 || c.extent(1) == 0) return;
  const Region region("kernels/matmul");
  if (handle.choice().products(DType::bf16) == MatmulBackend::cublaslt) {
    const LtProduct p =
        library_product<A, B, C>(c, a, of_a, b, of_b, beta, adds_bias ? bias : View1<const C>());
    check(handle.cublaslt().multiply(p, handle.stream()), "cuBLASLt ", cublaslt_version(),
          " has no fp8 product of ", p.rows, " × ", p.columns, " × ", p.depth,
          "; set [precision] products = \"compute\"");
    return;
  }
  if constexpr (std::is_same_v<C, Bf16>)
    if (adds_bias) broadcast_rows<C, C>(handle, c, bias);
  widened_fp8_product<A, B, C>(handle, c, a, b, of_a.inverse, of_b.inverse, adds_bias ? 1.0 : beta);
}

/// y = x wᵀ + bias.
void fp8_linear_forward(const Handle& handle, View2<Bf16> y, View2<const Bf16> x,
                        View2<const Bf16> w, View1<const Bf16> bias, const Fp8Linear& fp8) {
  const Codes<E4M3, E4M3> codes(fp8, extent(x, 0), extent(w, 0), extent(x, 1));
  fp8_quantize<E4M3>(handle, codes.a, x, fp8.input);
  fp8_quantize<E4M3>(handle, codes.b, w, fp8.weight);
  fp8_product<E4M3, E4M3, Bf16>(handle, y, codes.a, fp8.input, codes.b, fp8.weight, 0.0, bias);
}

/// dx = dy w.
void fp8_linear_backward_input(const Handle& handle, View2<Bf16> dx, View2<const Bf16> dy,
                               View2<const Bf16> w, const Fp8Linear& fp8) {
  const Codes<E5M2, E4M3> codes(fp8, extent(dy, 0), extent(w, 1), extent(dy, 1));
  fp8_quantize<E5M2>(handle, codes.a, dy, fp8.gradient);
  fp8_quantize_transposed<E4M3>(handle, codes.b, w, fp8.weight);
  fp8_product<E5M2, E4M3, Bf16>(handle, dx, codes.a, fp8.gradient, codes.b, fp8.weight, 0.0);
}

/// dw += dyᵀ x, dbias += Σ_t dy[t]; dbias is summed from gradients that are not rounded to fp8.
void fp8_linear_backward_weight(const Handle& handle, View2<float> dw, View1<float> dbias,
                                View2<const Bf16> dy, View2<const Bf16> x, const Fp8Linear& fp8) {
  if (dbias.data() != nullptr && dbias.extent(0) > 0) linear_backward_bias<Bf16>(handle, dbias, dy);
  const Codes<E5M2, E4M3> codes(fp8, extent(dy, 1), extent(x, 1), extent(dy, 0));
  fp8_quantize_transposed<E5M2>(handle, codes.a, dy, fp8.gradient);
  fp8_quantize_transposed<E4M3>(handle, codes.b, x, fp8.input);
  fp8_product<E5M2, E4M3, float>(handle, dw, codes.a, fp8.gradient, codes.b, fp8.input, 1.0);
}

#define TRIREME_INSTANTIATE(F)                                                              \
  template void fp8_quantize<F>(const Exec&, View2<F>, View2<const Bf16>, const Fp8Scale&); \
  template void fp8_quantize_transposed<F>(const Exec&, View2<F>, View2<const Bf16>,        \
                                           const Fp8Scale&)
TRIREME_INSTANTIATE(E4M3);
TRIREME_INSTANTIATE(E5M2);
#undef TRIREME_INSTANTIATE

#define TRIREME_INSTANTIATE(A, B, C)                                                           \
  template void fp8_product<A, B, C>(const Handle&, View2<C>, View2<const A>, const Fp8Scale&, \
                                     View2<const B>, const Fp8Scale&, double, View1<const C>)
TRIREME_INSTANTIATE(E4M3, E4M3, Bf16);
TRIREME_INSTANTIATE(E5M2, E4M3, Bf16);
TRIREME_INSTANTIATE(E5M2, E4M3, float);
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
