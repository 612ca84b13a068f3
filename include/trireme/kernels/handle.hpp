#pragma once

#include <trireme/base/kernel_memory.hpp>
#include <trireme/kernels/kernel_choice.hpp>
#include <trireme/tensor/arena.hpp>

#include <memory>
#include <string>
#include <vector>

namespace trireme::kernels {

class CublasLt;
class CudnnAttention;

/// Device bytes of a Handle's workspace, for cuBLASLt and for column sums. 0 on hosts.
Bytes workspace_bytes();

/// Blocks of both operands and of the sum, in fp32, for products of two-byte types; packed operands
/// and sums for those by the processor's bf16 instructions.
struct WidenedOperands {
  Arena arena{"two-byte products", widened_workspace_bytes};
  View1<float> a, b, sum;  // [widened_block · widened_block]

  WidenedOperands();
};

/// An instance of Exec with the back ends and the workspaces of its kernels, as cublasHandle_t is
/// for cuBLAS. Kernels that have several back ends or need a workspace take a Handle; all others
/// take an Exec, to which a Handle converts. Kernels on one instance run in order, so that each may
/// use the whole workspace. For one thread at a time; must be destroyed before Kokkos is finalized
/// and after its kernels have ended.
class Handle {
 public:
  explicit Handle(const KernelChoice& choice = {}, const Exec& exec = Exec{});
  ~Handle();
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  const Exec& exec() const { return exec_; }
  operator const Exec&() const { return exec_; }
  const KernelChoice& choice() const { return choice_; }
  /// The instance's stream for libraries: a cudaStream_t, otherwise null.
  void* stream() const;

  /// Creates all objects that products of `type` need besides the workspace, which otherwise the
  /// first product would create.
  void prepare_products(DType type) const;

  /// Memory for column_sum_threads partial sums on devices; empty on hosts.
  template <class Sum>
  View1<Sum> partial_sums() const {
    return View1<Sum>(reinterpret_cast<Sum*>(partial_sums_.data()),
                      partial_sums_.extent(0) / sizeof(double));
  }
  /// cuBLASLt's workspace, which other libraries may use between its products; empty without
  /// cuBLASLt.
  View1<std::byte> library_workspace() const { return library_workspace_; }
  /// cuBLASLt; only in builds with it.
  CublasLt& cublaslt() const { return *cublaslt_; }
  /// cuDNN; only in builds with it. Created at the first use.
  CudnnAttention& cudnn() const;
  /// Created at the first use.
  const WidenedOperands& widened_operands() const;

  Bytes workspace_bytes() const { return arena_.capacity(); }
  /// widened_workspace_bytes, or 0 before the first use.
  Bytes widened_bytes() const { return widened_ ? widened_->arena.capacity() : 0; }

  /// One line per kind of product that cuBLASLt computed, with the algorithm that its heuristics
  /// chose; empty with other back ends.
  std::vector<std::string> product_choices() const;
  /// One line per kind of call requested from cuDNN: its kernel, or the reason why there is none.
  std::vector<std::string> attention_choices() const;

 private:
  Exec exec_;
  KernelChoice choice_;
  Arena arena_;
  View1<std::byte> partial_sums_;
  View1<std::byte> library_workspace_;
  std::unique_ptr<CublasLt> cublaslt_;
  mutable std::unique_ptr<CudnnAttention> cudnn_;
  mutable std::unique_ptr<WidenedOperands> widened_;
};

}  // namespace trireme::kernels
