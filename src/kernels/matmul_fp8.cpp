// Products of fp8 values by cuBLASLt or in fp32, and the passes of a linear layer with such
// products. fp8_product computes only a bᵀ, so that the gradients need transposed codes.
#include <trireme/base/check.hpp>
#include <trireme/kernels/cublaslt.hpp>
#include <trireme/kernels/fp8.hpp>
#include <trireme/kernels/matmul_product.hpp>
#include <trireme/tensor/expect.hpp>
#include <trireme/tensor/region.hpp>

namespace trireme::kernels {
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

#define TRIREME_INSTANTIATE(A, B, C)                                                           \
  template void fp8_product<A, B, C>(const Handle&, View2<C>, View2<const A>, const Fp8Scale&, \
                                     View2<const B>, const Fp8Scale&, double, View1<const C>)
TRIREME_INSTANTIATE(E4M3, E4M3, Bf16);
TRIREME_INSTANTIATE(E5M2, E4M3, Bf16);
TRIREME_INSTANTIATE(E5M2, E4M3, float);
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
