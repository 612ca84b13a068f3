#pragma once

#include <trireme/base/matmul_memory.hpp>
#include <trireme/tensor/arena.hpp>

#include <cstdint>
#include <memory>

namespace trireme::kernels {

class CublasLt;

/// What products and the sums of columns on one instance of Exec need beside their operands: an
/// arena of matmul_workspace_bytes, and the library's handle and choices. Kernels of an instance
/// follow each other, so each may use all of it.
class MatmulWorkspace {
 public:
  MatmulWorkspace();
  ~MatmulWorkspace();
  MatmulWorkspace(const MatmulWorkspace&) = delete;
  MatmulWorkspace& operator=(const MatmulWorkspace&) = delete;

  /// Room for column_sum_threads numbers where columns are summed by slices, else empty.
  template <class Sum>
  View1<Sum> partial_sums() const {
    return View1<Sum>(reinterpret_cast<Sum*>(partial_sums_.data()),
                      partial_sums_.extent(0) / sizeof(double));
  }

  /// The library's, which others may use between its products; empty without cuBLASLt.
  View1<std::byte> library_workspace() const { return library_workspace_; }

  /// Only in builds with cuBLASLt.
  CublasLt& cublaslt() const { return *cublaslt_; }

  const Arena& arena() const { return arena_; }

 private:
  Arena arena_;
  View1<std::byte> partial_sums_;
  View1<std::byte> library_workspace_;
  std::unique_ptr<CublasLt> cublaslt_;
};

/// 0 on hosts.
Bytes matmul_workspace_bytes();

/// That of exec, made at its first use and freed as Kokkos ends.
MatmulWorkspace& matmul_workspace(const Exec& exec);

/// The queue behind exec, which libraries take: a cudaStream_t, else null.
void* stream_of(const Exec& exec);

}  // namespace trireme::kernels
