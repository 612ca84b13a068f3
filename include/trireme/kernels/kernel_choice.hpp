#pragma once

#include <trireme/base/types.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

/// Back ends: kernels with the same result up to rounding. Fixed rules choose them, not autotuning,
/// so that a restart reproduces the same bits.
namespace trireme::kernels {

enum class MatmulBackend : std::uint8_t {
  tiled,           ///< Trireme's own Kokkos kernel
  kokkos_kernels,  ///< KokkosBlas::gemm: the vendor's BLAS on devices, the installed BLAS on hosts
  onednn,          ///< fp32 on hosts
  cublaslt,        ///< all types on NVIDIA devices
  widened,         ///< bf16 and fp16, by fp32 products (matmul_product.hpp)
  native           ///< bf16 on hosts (bf16_tiles.hpp); without instructions for it slow, for tests
};

enum class AttentionBackend : std::uint8_t {
  portable,      ///< Kokkos, anywhere, any type and size: sums and probabilities in fp32 or wider
  tensor_cores,  ///< bf16 and fp16 on devices that have them (flash_attention.hpp); rounds
                 ///< probabilities and their gradients to T before products
  cudnn,         ///< bf16 and fp16, in builds with the library (cudnn_attention.hpp)
  native  ///< bf16 on hosts with AMX: the portable blocks, whose products round probabilities
          ///< and their gradients to bf16
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

/// The back ends of [precision] attention in this build. `automatic`: forward cuDNN if it is
/// available, otherwise tensor cores; backward tensor cores, because cuDNN's deterministic gradient
/// stores S² values per head and must be requested. On hosts `automatic` is native, where
/// available, and all others are portable. Error if the deck names an unavailable back end.
AttentionBackends attention_backends_of(DType type, AttentionKind kind);

/// The back ends that a Handle's kernels use.
class KernelChoice {
 public:
  /// The defaults. Products: cuBLASLt on CUDA devices if the build has it, otherwise Kokkos
  /// Kernels; on hosts oneDNN for fp32 if the build has it, otherwise the tiled kernel, because the
  /// installed BLAS may be the slow reference implementation. On hosts bf16 by the processor's own
  /// instructions; bf16 and fp16 without these and without cuBLASLt are widened. Attention:
  /// AttentionKind::automatic.
  KernelChoice();

  /// Back end of products. Kokkos Kernels compute products that cuBLASLt does not support, widened
  /// first for two-byte types.
  MatmulBackend products(DType type) const;
  /// Error if the back end is unavailable for the type.
  KernelChoice& set_products(DType type, MatmulBackend backend);

  /// Back ends of attention. Unsupported calls use the next one: cuDNN (no window, no dropout),
  /// tensor cores (FlashHeadSizes, rows that begin at multiples of 16 bytes), portable. fp32 and
  /// fp64 use the portable back end.
  AttentionBackends attention(DType type) const;
  /// Error if a back end is unavailable for the type, which must be bf16 or fp16.
  KernelChoice& set_attention(DType type, AttentionBackends backends);

  /// Whether cuBLASLt may round the operands of fp32 products to tf32 (11 bits), which tensor cores
  /// multiply. No effect on other back ends.
  bool tf32 = false;

  /// Name of the back end with the library's version, for logs: "oneDNN 2.6.3", "AMX".
  std::string products_description(DType type) const;
  /// For logs: "forward by cuDNN 9.19.0, backward by tensor cores"; empty if both are portable.
  std::string attention_description(DType type) const;

 private:
  std::array<MatmulBackend, 4> products_;       // by type: fp64, fp32, bf16, fp16
  std::array<AttentionBackends, 2> attention_;  // by type: bf16, fp16
};

}  // namespace trireme::kernels
