#pragma once

#include <trireme/base/types.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

/// Back ends: kernels of equal meaning. Fixed rules choose them, not autotuning, so that a restart
/// reproduces the same bits.
namespace trireme::kernels {

enum class MatmulBackend : std::uint8_t {
  tiled,           ///< Trireme's own Kokkos kernel
  kokkos_kernels,  ///< KokkosBlas::gemm: the vendor's BLAS on devices, the installed BLAS on hosts
  onednn,          ///< fp32 on hosts
  cublaslt,        ///< every type on NVIDIA devices
  widened          ///< bf16 and fp16, by the products of fp32 (widened_matmul.hpp)
};

enum class AttentionBackend : std::uint8_t {
  portable,      ///< Kokkos, anywhere, any type and size: sums and probabilities in fp32 or wider
  tensor_cores,  ///< bf16 and fp16 on devices that have them (flash_attention.hpp); probabilities
                 ///< and their gradients are rounded to T before they are multiplied
  cudnn          ///< bf16 and fp16, in builds with the library (cudnn_attention.hpp)
};

std::string_view name_of(MatmulBackend backend);     ///< "tiled", "Kokkos Kernels", "oneDNN", …
std::string_view name_of(AttentionBackend backend);  ///< "portable", "tensor cores", "cuDNN"

bool matmul_backend_available(DType type, MatmulBackend backend);
bool attention_backend_available(DType type, AttentionBackend backend);

/// The backward pass may use another back end than the forward pass.
struct AttentionBackends {
  AttentionBackend forward = AttentionBackend::portable;
  AttentionBackend backward = AttentionBackend::portable;
  bool operator==(const AttentionBackends&) const = default;
};

/// The back ends of [precision] attention in this build. `automatic`: forward cuDNN where it is
/// available, otherwise tensor cores; backward tensor cores, since cuDNN's deterministic gradient
/// stores S² numbers per head and must be asked for. Hosts use the portable one. Error if a deck
/// names one that is unavailable.
AttentionBackends attention_backends_of(DType type, AttentionKind kind);

/// The back ends that a Handle's kernels use.
class KernelChoice {
 public:
  /// The defaults. Products: cuBLASLt on CUDA devices if the build has it, otherwise Kokkos
  /// Kernels; on hosts oneDNN for fp32 if the build has it, otherwise the tiled kernel, because the
  /// installed BLAS may be the slow reference implementation. bf16 and fp16 without cuBLASLt are
  /// widened. Attention: AttentionKind::automatic.
  KernelChoice();

  /// Products that cuBLASLt does not support go to Kokkos Kernels, widened first if narrow.
  MatmulBackend products(DType type) const;
  /// Error if the back end is unavailable for the type.
  KernelChoice& set_products(DType type, MatmulBackend backend);

  /// Calls that a back end does not support go to the next one: from cuDNN (no window, no dropout)
  /// to tensor cores (FlashHeadSizes, rows that begin at multiples of 16 bytes) to the portable
  /// one. fp32 and fp64 use the portable one.
  AttentionBackends attention(DType type) const;
  /// Error if one is unavailable for the type, which is bf16 or fp16.
  KernelChoice& set_attention(DType type, AttentionBackends backends);

  /// Whether cuBLASLt may round the operands of fp32 products to tf32 (11 bits), which tensor cores
  /// multiply. No effect on other back ends.
  bool tf32 = false;

  /// For logs: name of the back end, with the library's version: "oneDNN 2.6.3".
  std::string products_description(DType type) const;
  /// "forward by cuDNN 9.19.0, backward by tensor cores"; empty if both are portable.
  std::string attention_description(DType type) const;

 private:
  std::array<MatmulBackend, 4> products_;       // of fp64, fp32, bf16, fp16
  std::array<AttentionBackends, 2> attention_;  // of bf16, fp16
};

}  // namespace trireme::kernels
