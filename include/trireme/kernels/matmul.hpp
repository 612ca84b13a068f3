#pragma once

#include <trireme/base/types.hpp>
#include <trireme/tensor/views.hpp>

#include <string_view>

/// Matrix products: the only caller of Kokkos Kernels, BLAS and oneDNN. Everything is asynchronous
/// on exec, and explicitly instantiated for float, double, Bf16 and Fp16.
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

/// dx[t,m] = Σ_n dy[t,n] w[n,m]. dx [T,M], dy [T,N], w [N,M].
template <class T>
void linear_backward_input(const Exec& exec, View2<T> dx, View2<const T> dy, View2<const T> w);

/// dw[n,m] += Σ_t dy[t,n] x[t,m] and dbias[n] += Σ_t dy[t,n], both summed in a fixed order. dw
/// [N,M], dbias [N] or an empty view, dy [T,N], x [T,M].
template <class T>
void linear_backward_weight(const Exec& exec, View2<Accumulate<T>> dw, View1<Accumulate<T>> dbias,
                            View2<const T> dy, View2<const T> x);

/// dbias[n] += Σ_t dy[t,n], in a fixed order. dbias [N], dy [T,N].
template <class T>
void linear_backward_bias(const Exec& exec, View1<Accumulate<T>> dbias, View2<const T> dy);

// ---- Back ends: chosen per data type, by a rule and never by a measurement, so that a restarted
// run has the same bits. Products of bf16 and fp16 are made of fp32 ones (widened_matmul.hpp).

enum class MatmulBackend : std::uint8_t {
  tiled,           ///< Trireme's own Kokkos kernel
  kokkos_kernels,  ///< KokkosBlas::gemm: the vendor's BLAS on devices, whatever BLAS was installed
                   ///< on hosts
  onednn,          ///< fp32 on hosts
};

std::string_view name_of(MatmulBackend backend);  ///< "tiled", "Kokkos Kernels", "oneDNN"

bool matmul_backend_available(DType type, MatmulBackend backend);

/// The back end in use; of bf16 and fp16 that of fp32. By default Kokkos Kernels on devices; on
/// hosts oneDNN for fp32 where it was found, else the tiled kernel, because a host BLAS can be the
/// reference one without saying so.
MatmulBackend matmul_backend(DType type);

/// Changes it for this process; an unavailable one is an error. Not to be called while products are
/// in flight.
void set_matmul_backend(DType type, MatmulBackend backend);

/// For logs: the name of the back end in use, with the library's version where it is known
/// ("oneDNN 2.6.3").
std::string matmul_backend_name(DType type);

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
