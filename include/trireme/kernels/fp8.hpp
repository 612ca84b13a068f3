#pragma once

#include <trireme/base/fp8.hpp>
#include <trireme/kernels/matmul.hpp>

/// Matrix products of bf16 operands that are first rounded to fp8, with one scale per tensor. The
/// codes of x are the E4M3 or E5M2 values nearest to scale · x. Products of codes are summed in
/// fp32 and divided by both scales. Rows, columns and depths are multiples of 16.
namespace trireme::kernels {

/// Scale of a tensor, and storage for its largest magnitude.
struct Fp8Scale {
  const float* scale = nullptr;    ///< [1], a power of two
  const float* inverse = nullptr;  ///< [1], 1 / scale; cuBLASLt needs a multiple of 16 bytes
  float* maximum = nullptr;        ///< [1], raised to the largest |x|; null: not recorded
};

/// codes = scale · x, rounded to nearest, both [T, N]. Raises *scale.maximum, ignoring NaNs. F:
/// E4M3 or E5M2.
template <class F>
void fp8_quantize(const Exec& exec, View2<F> codes, View2<const Bf16> x, const Fp8Scale& scale);

/// codes [N, T] = (scale · x)ᵀ, rounded to nearest, x [T, N]. Does not change the maximum.
template <class F>
void fp8_quantize_transposed(const Exec& exec, View2<F> codes, View2<const Bf16> x,
                             const Fp8Scale& scale);

/// c = a bᵀ / (scale of a · scale of b) + beta c. c [M, N] of Bf16 or float, a [M, K], b [N, K].
/// `bias` [N], or empty, is added to each row; it requires C = Bf16 and beta = 0. Error if cuBLASLt
/// is the back end and does not support the product.
template <class A, class B, class C>
void fp8_product(const Handle& handle, View2<C> c, View2<const A> a, const Fp8Scale& of_a,
                 View2<const B> b, const Fp8Scale& of_b, double beta, View1<const C> bias = {});

/// Scales of a linear layer's input, of its weights, and of the gradient of its output.
struct Fp8Linear {
  Fp8Scale input;              ///< E4M3
  Fp8Scale weight;             ///< E4M3
  Fp8Scale gradient;           ///< E5M2
  std::byte* codes = nullptr;  ///< architecture::fp8_code_bytes() bytes for the codes of a pass
};

/// Passes of a linear layer, as in matmul.hpp. fp8_linear_forward records the maxima of inputs and
/// weights, and fp8_linear_backward_input the maximum of gradients.
void fp8_linear_forward(const Handle& handle, View2<Bf16> y, View2<const Bf16> x,
                        View2<const Bf16> w, View1<const Bf16> bias, const Fp8Linear& fp8);
void fp8_linear_backward_input(const Handle& handle, View2<Bf16> dx, View2<const Bf16> dy,
                               View2<const Bf16> w, const Fp8Linear& fp8);
void fp8_linear_backward_weight(const Handle& handle, View2<float> dw, View1<float> dbias,
                                View2<const Bf16> dy, View2<const Bf16> x, const Fp8Linear& fp8);

/// history(row, t) = maxima(t), or 0 if the maximum is not finite; maxima(t) = 0. history [H, n],
/// maxima [n].
void record_fp8_maxima(const Exec& exec, View2<float> history, std::int64_t row,
                       View1<float> maxima);

/// Rule that derives scales from maxima. Tensors are in groups of three: an input and a weight
/// (both E4M3), and a gradient (E5M2).
struct Fp8Rule {
  Fp8Algorithm algorithm = Fp8Algorithm::max;
  std::int64_t newest = 0;    ///< row of the history with the newest maxima
  int gradient_exponent = 0;  ///< initial scales: gradients 2^gradient_exponent, others 1
};

/// scales(t): the largest power of two that scales the maximum of tensor t into the type's range,
/// limited to 2^±fp8_scale_limit; the initial scale if the maximum is 0. The maximum is the largest
/// value of history(·, t), or with most_recent the newest value that is not 0. inverses(t, 0) = 1 /
/// scales(t). history [H, n]; inverses [n, ≥ 1].
void find_fp8_scales(const Exec& exec, View1<float> scales, View2<float> inverses,
                     View2<const float> history, const Fp8Rule& rule);

/// Reason why this device does not support fp8 products, such as "the device … is sm_80, and
/// products of fp8 need sm_89 or newer"; "" if the device supports them or Exec is not CUDA.
std::string fp8_obstacle(const Exec& exec);

}  // namespace trireme::kernels
