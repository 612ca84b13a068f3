// Number of threads that host libraries use for products, set through their OpenMP runtime.
#include <trireme/base/check.hpp>
#include <trireme/kernels/matmul_product.hpp>

#include <dlfcn.h>

namespace trireme::kernels {
namespace {

int library_threads = 0;  // 0: not set yet

}  // namespace

void set_matmul_threads(int threads) {
  check(threads >= 1, "matrix products need at least 1 thread, got ", threads);
  library_threads = threads;
  // The function is looked up at run time, to find the OpenMP runtime that the libraries loaded, if
  // any.
  using SetThreads = void (*)(int);
  if (void* symbol = dlsym(RTLD_DEFAULT, "omp_set_num_threads"); symbol != nullptr)
    reinterpret_cast<SetThreads>(symbol)(threads);
}

void set_default_matmul_threads(const Exec& exec) {
  if (exec_on_host && library_threads == 0)
    set_matmul_threads(static_cast<int>(exec.concurrency()));
}

}  // namespace trireme::kernels
