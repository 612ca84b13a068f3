#include <trireme/kernels/matmul_cublaslt.hpp>

#include <algorithm>

namespace trireme::kernels {
namespace {

template <class View>
std::int64_t stride_of(const View& view) {
  return std::max<std::int64_t>(static_cast<std::int64_t>(view.stride(0)), extent(view, 1));
}

}  // namespace

template <class T, class C>
bool matmul_cublaslt(const Handle& handle, View2<C> c, View2<const T> a, View2<const T> b,
                     Transpose ta, Transpose tb, double alpha, double beta,
                     const Epilogue<C>& epilogue) {
  if (handle.choice().products(dtype_of<T>) != MatmulBackend::cublaslt) return false;
  LtProduct p;
  p.input = dtype_of<T>;
  p.output = dtype_of<C>;
  p.tf32 = dtype_of<T> == DType::fp32 && handle.choice().tf32;
  p.transposed_a = ta == Transpose::yes;
  p.transposed_b = tb == Transpose::yes;
  p.rows = extent(c, 0);
  p.columns = extent(c, 1);
  p.depth = extent(a, p.transposed_a ? 0 : 1);
  if (p.rows == 0 || p.columns == 0 || p.depth == 0) return false;
  p.a = a.data();
  p.b = b.data();
  p.c = c.data();
  p.stride_a = stride_of(a);
  p.stride_b = stride_of(b);
  p.stride_c = stride_of(c);
  p.alpha = alpha;
  p.beta = beta;
  p.epilogue = epilogue.kind;
  p.bias = epilogue.bias.data();
  p.auxiliary = epilogue.auxiliary.data();
  p.stride_auxiliary = p.auxiliary == nullptr ? 0 : stride_of(epilogue.auxiliary);
  return handle.cublaslt().multiply(p, handle.stream());
}

bool cublaslt_fuses_gelu([[maybe_unused]] const Exec& exec) {
#if defined(KOKKOS_ENABLE_CUDA)
  if constexpr (std::is_same_v<Exec, Kokkos::Cuda>) return exec.cuda_device_prop().major >= 9;
#endif
  return has_cublaslt();  // without CUDA, true only in tests that simulate a device on a host
}

#define TRIREME_INSTANTIATE(T, C)                                                              \
  template bool matmul_cublaslt<T, C>(const Handle&, View2<C>, View2<const T>, View2<const T>, \
                                      Transpose, Transpose, double, double, const Epilogue<C>&)
TRIREME_INSTANTIATE(float, float);
TRIREME_INSTANTIATE(double, double);
TRIREME_INSTANTIATE(Bf16, Bf16);
TRIREME_INSTANTIATE(Bf16, float);
TRIREME_INSTANTIATE(Fp16, Fp16);
TRIREME_INSTANTIATE(Fp16, float);
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
