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

/// Size of a Handle's workspace in bytes of device memory, for cuBLASLt and for column sums.
Bytes workspace_bytes();

/// Memory for products of two-byte and fp8 types: sums, and operands that are widened to fp32 or
/// packed for the processor's bf16 instructions.
struct WidenedOperands {
  Arena arena{"two-byte products", widened_workspace_bytes};
  View1<float> a, b, sum;  // [widened_block · widened_block]

  WidenedOperands();
};

/// An instance of Exec with the back ends and the workspaces of its kernels, comparable to a
/// cublasHandle_t. Kernels that have several back ends or need a workspace take a Handle; all other
/// kernels take an Exec, to which a Handle converts. The kernels of a Handle run one after another
/// and share the workspace. Only one thread at a time may use a Handle. A Handle must be destroyed
/// after its kernels have ended and before Kokkos is finalized.
class Handle {
 public:
  explicit Handle(const KernelChoice& choice = {}, const Exec& exec = Exec{});
  ~Handle();
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  const Exec& exec() const { return exec_; }
  operator const Exec&() const { return exec_; }
  const KernelChoice& choice() const { return choice_; }
  /// The stream of exec(), for libraries: a cudaStream_t, or null if Exec is not CUDA.
  void* stream() const;

  /// Allocates the memory of widened_operands() if `type` is bf16 or fp16, so that no product does.
  void prepare_products(DType type) const;

  /// Memory for column_sum_threads partial sums on devices; empty on hosts.
  template <class Sum>
  View1<Sum> partial_sums() const {
    return View1<Sum>(reinterpret_cast<Sum*>(partial_sums_.data()),
                      partial_sums_.extent(0) / sizeof(double));
  }
  /// cuBLASLt's workspace, which other libraries may use between products; empty without cuBLASLt.
  View1<std::byte> library_workspace() const { return library_workspace_; }
  /// cuBLASLt's handle and algorithms. Must not be called in builds without cuBLASLt.
  CublasLt& cublaslt() const { return *cublaslt_; }
  /// cuDNN's handle and plans, created at the first call. Error in builds without cuDNN.
  CudnnAttention& cudnn() const;
  /// Memory for products by widened or packed operands, allocated at the first call.
  const WidenedOperands& widened_operands() const;

  Bytes workspace_bytes() const { return arena_.capacity(); }
  /// widened_workspace_bytes, or 0 before the first call of widened_operands().
  Bytes widened_bytes() const { return widened_ ? widened_->arena.capacity() : 0; }

  /// One line per kind of product so far, with the algorithm that cuBLASLt's heuristics chose, or
  /// with "none in the library"; empty without cuBLASLt.
  std::vector<std::string> product_choices() const;
  /// One line per kind of call of cuDNN so far, with its kernel, or the reason why there is none.
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
