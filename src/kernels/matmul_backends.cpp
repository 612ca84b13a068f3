#include <trireme/base/check.hpp>
#include <trireme/kernels/cublaslt.hpp>
#include <trireme/kernels/matmul_product.hpp>
#include <trireme/kernels/matmul_workspace.hpp>
#include <trireme/kernels/widened_matmul.hpp>

#if defined(TRIREME_HAS_ONEDNN)
#include <oneapi/dnnl/dnnl.h>
#endif

#include <dlfcn.h>

#include <array>
#include <string>

namespace trireme::kernels {
namespace {

#if defined(TRIREME_HAS_ONEDNN)
constexpr bool has_onednn = exec_on_host;
#else
constexpr bool has_onednn = false;
#endif

bool is_two_bytes(DType type) {
  return type == DType::bf16 || type == DType::fp16;
}

MatmulBackend default_backend(DType type) {
  if (!exec_on_host && has_cublaslt()) return MatmulBackend::cublaslt;
  if (is_two_bytes(type)) return MatmulBackend::widened;
  if (!exec_on_host) return MatmulBackend::kokkos_kernels;
  return type == DType::fp32 && has_onednn ? MatmulBackend::onednn : MatmulBackend::tiled;
}

MatmulBackend& backend_of(DType type) {
  constexpr std::array types{DType::fp64, DType::fp32, DType::bf16, DType::fp16};
  static std::array backends{default_backend(types[0]), default_backend(types[1]),
                             default_backend(types[2]), default_backend(types[3])};
  for (std::size_t i = 0; i < types.size(); ++i)
    if (types[i] == type) return backends[i];
  check(false, "no matrix products of ", name_of(type), "; expected fp64, fp32, bf16 or fp16");
  return backends[0];
}

int library_threads = 0;  // not yet set
bool tf32 = false;

}  // namespace

std::string_view name_of(MatmulBackend backend) {
  switch (backend) {
    case MatmulBackend::tiled:
      return "tiled";
    case MatmulBackend::kokkos_kernels:
      return "Kokkos Kernels";
    case MatmulBackend::onednn:
      return "oneDNN";
    case MatmulBackend::cublaslt:
      return "cuBLASLt";
    case MatmulBackend::widened:
      return "widened";
  }
  return "";
}

bool matmul_backend_available(DType type, MatmulBackend backend) {
  const bool narrow = is_two_bytes(type);
  if (!narrow && type != DType::fp32 && type != DType::fp64) return false;
  switch (backend) {
    case MatmulBackend::tiled:
    case MatmulBackend::kokkos_kernels:
      return !narrow;
    case MatmulBackend::onednn:
      return has_onednn && type == DType::fp32;
    case MatmulBackend::cublaslt:
      return has_cublaslt();
    case MatmulBackend::widened:
      return narrow;
  }
  return false;
}

MatmulBackend matmul_backend(DType type) {
  return backend_of(type);
}

void set_matmul_backend(DType type, MatmulBackend backend) {
  check(matmul_backend_available(type, backend), "matrix products of ", name_of(type),
        " are not available from ", name_of(backend));
  backend_of(type) = backend;
}

std::string matmul_backend_name(DType type) {
  const MatmulBackend backend = matmul_backend(type);
  if (backend == MatmulBackend::widened) return matmul_backend_name(DType::fp32) + " in fp32";
  std::string name(name_of(backend));
#if defined(TRIREME_HAS_ONEDNN)
  if (backend == MatmulBackend::onednn) {
    const dnnl_version_t* version = dnnl_version();
    name = text(name, ' ', version->major, '.', version->minor, '.', version->patch);
  }
#endif
  if (backend != MatmulBackend::cublaslt) return name;
  return text(name, ' ', cublaslt_version(), type == DType::fp32 && tf32 ? " in tf32" : "");
}

bool matmul_tf32() {
  return tf32;
}

void set_matmul_tf32(bool on) {
  tf32 = on;
}

void prepare_matmul(const Exec& exec, DType type) {
  if (is_two_bytes(type)) prepare_widened_matmul();  // a library may not have all products
  if (matmul_workspace_bytes() > 0) matmul_workspace(exec);
}

std::vector<std::string> matmul_choices(const Exec& exec) {
  if (!has_cublaslt()) return {};
  return matmul_workspace(exec).cublaslt().choices();
}

void set_matmul_threads(int threads) {
  check(threads >= 1, "matrix products need at least 1 thread, got ", threads);
  library_threads = threads;
  // Found at run time: whichever OpenMP the libraries brought along is the one to tell, and a
  // library built without it needs no telling.
  using SetThreads = void (*)(int);
  if (void* symbol = dlsym(RTLD_DEFAULT, "omp_set_num_threads"); symbol != nullptr)
    reinterpret_cast<SetThreads>(symbol)(threads);
}

void set_default_matmul_threads(const Exec& exec) {
  if (exec_on_host && library_threads == 0)
    set_matmul_threads(static_cast<int>(exec.concurrency()));
}

}  // namespace trireme::kernels
