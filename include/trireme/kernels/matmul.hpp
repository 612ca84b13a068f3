#pragma once

#include <trireme/base/types.hpp>
#include <trireme/tensor/views.hpp>

#include <string>
#include <string_view>
#include <vector>

/// Matrix products: the only caller of Kokkos Kernels, BLAS, oneDNN and cuBLASLt. Everything is
/// asynchronous on exec, and explicitly instantiated for float, double, Bf16 and Fp16.
namespace trireme::kernels {

enum class Transpose : std::uint8_t { no, yes };

/// c = alpha op(a) op(b) + beta c. c [M,N]; op(a) [M,K], op(b) [K,N], each stored transposed where
/// told. c overlaps neither input; it may be uninitialised where beta = 0.
template <class T>
void matmul(const Exec& exec, View2<T> c, View2<const T> a, View2<const T> b, Transpose ta,
            Transpose tb, double alpha = 1.0, double beta = 0.0);

/// y[t,n] = Σ_m x[t,m] w[n,m] + bias[n]. y [T,N], x [T,M], w [N,M], bias [N] or an empty view.
template <class T>
void linear_forward(const Exec& exec, View2<T> y, View2<const T> x, View2<const T> w,
                    View1<const T> bias);

/// The same, and y keeps the sums as they are added up: fp32 or wider.
template <class T>
void linear_forward_wide(const Exec& exec, View2<Accumulate<T>> y, View2<const T> x,
                         View2<const T> w, View1<const T> bias);

/// h = x wᵀ + bias and g = gelu(h). g, h [T,N], which do not overlap. In one kernel where the
/// library has it: g is then that of the sums as they are added up, and not of the rounded h.
template <class T>
void linear_gelu_forward(const Exec& exec, View2<T> g, View2<T> h, View2<const T> x,
                         View2<const T> w, View1<const T> bias, Gelu form);

/// dx[t,m] = Σ_n dy[t,n] w[n,m]. dx [T,M], dy [T,N], w [N,M].
template <class T>
void linear_backward_input(const Exec& exec, View2<T> dx, View2<const T> dy, View2<const T> w);

/// dh = (dy w) gelu'(h): linear_backward_input of a layer whose input is gelu(h). dh, h [T,M],
/// which do not overlap. In one kernel where the library has it: dy w is then not rounded in
/// between.
template <class T>
void linear_gelu_backward_input(const Exec& exec, View2<T> dh, View2<const T> dy, View2<const T> w,
                                View2<const T> h, Gelu form);

/// Whether those two ask the library for one kernel, for rows of `columns` numbers of `type`: bf16
/// and fp16 in GELU's tanh form, where cuBLASLt is their back end, on Hopper and newer, with
/// columns a multiple of 8.
bool fuses_gelu(const Exec& exec, DType type, Gelu form, std::int64_t columns);

/// dw[n,m] += Σ_t dy[t,n] x[t,m] and dbias[n] += Σ_t dy[t,n], both summed in a fixed order. dw
/// [N,M], dbias [N] or an empty view, dy [T,N], x [T,M].
template <class T>
void linear_backward_weight(const Exec& exec, View2<Accumulate<T>> dw, View1<Accumulate<T>> dbias,
                            View2<const T> dy, View2<const T> x);

/// dbias[n] += Σ_t dy[t,n], in a fixed order. dbias [N], dy [T,N].
template <class T>
void linear_backward_bias(const Exec& exec, View1<Accumulate<T>> dbias, View2<const T> dy);

// ---- Back ends: chosen per data type, by a rule and never by a measurement, so that a restarted
// run has the same bits.

enum class MatmulBackend : std::uint8_t {
  tiled,           ///< Trireme's own Kokkos kernel
  kokkos_kernels,  ///< KokkosBlas::gemm: the vendor's BLAS on devices, whatever BLAS was installed
                   ///< on hosts
  onednn,          ///< fp32 on hosts
  cublaslt,        ///< every type on NVIDIA's devices
  widened          ///< bf16 and fp16, by the products of fp32 (widened_matmul.hpp)
};

/// "tiled", "Kokkos Kernels", "oneDNN", "cuBLASLt", "widened"
std::string_view name_of(MatmulBackend backend);

bool matmul_backend_available(DType type, MatmulBackend backend);

/// The back end in use. By default cuBLASLt on CUDA devices where it was found, and Kokkos Kernels
/// on others; on hosts oneDNN for fp32 where it was found, else the tiled kernel, because a host
/// BLAS can be the reference one without saying so. bf16 and fp16 are widened but by cuBLASLt. What
/// cuBLASLt has not goes to Kokkos Kernels, widened first where it is narrow.
MatmulBackend matmul_backend(DType type);

/// Changes it for this process; an unavailable one is an error. Not to be called while products are
/// in flight.
void set_matmul_backend(DType type, MatmulBackend backend);

/// For logs: the name of the back end in use, with the library's version where it is known
/// ("oneDNN 2.6.3").
std::string matmul_backend_name(DType type);

/// Whether cuBLASLt may round the operands of fp32 products to the 11 bits of tf32, which tensor
/// cores multiply; false unless set. Of no effect on other back ends.
bool matmul_tf32();
void set_matmul_tf32(bool on);

/// Makes what products of `type` on exec need beside their operands: workspaces and a library's
/// handle. The first product does it otherwise.
void prepare_matmul(const Exec& exec, DType type);

/// A line for each kind of product that cuBLASLt met on exec, with the algorithm that its
/// heuristics chose; empty with other back ends.
std::vector<std::string> matmul_choices(const Exec& exec);

/// Threads that a host library may use in this process. One rank has one core unless Exec has more:
/// a library that takes all cores by itself would fight the other ranks. Without a call the first
/// product sets Exec's concurrency. Holds for the calling thread, which must be the one that
/// launches products.
void set_matmul_threads(int threads);

/// Best rate, in FLOP/s, that this rank reaches on a large square product of `type` within about
/// 0.3 s; waits for exec and allocates, so it belongs outside the training loop. This is the peak
/// that utilisation refers to.
double measure_matmul_peak(const Exec& exec, DType type);

}  // namespace trireme::kernels
