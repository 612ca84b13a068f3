#pragma once

#include <trireme/base/types.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

/// Back ends: implementations of a kernel with the same results up to rounding. They are chosen by
/// fixed rules, not by autotuning, so that a restart reproduces the same bits.
namespace trireme::kernels {

enum class MatmulBackend : std::uint8_t {
  tiled,           ///< Trireme's own Kokkos kernel
  kokkos_kernels,  ///< KokkosBlas::gemm, which may call an installed or the vendor's BLAS
  onednn,          ///< fp32 on hosts
  cublaslt,        ///< all types on NVIDIA devices
  widened,         ///< bf16 and fp16, by fp32 products (matmul_product.hpp)
  native           ///< bf16 on hosts (bf16_tiles.hpp); slow on processors without bf16 instructions
};

enum class AttentionBackend : std::uint8_t {
  portable,      ///< Kokkos, anywhere, any type and size: sums and probabilities in fp32 or wider
  tensor_cores,  ///< bf16 and fp16 on devices with tensor cores (flash_attention.hpp); rounds
                 ///< probabilities and gradients of scores to T before products
  cudnn,         ///< bf16 and fp16, in builds with cuDNN (cudnn_attention.hpp)
  native  ///< bf16 on hosts, the default with AMX: the portable kernel, with products that round
          ///< probabilities and gradients of scores to bf16
};

std::string_view name_of(MatmulBackend backend);     ///< "tiled", "Kokkos Kernels", "oneDNN", …
std::string_view name_of(AttentionBackend backend);  ///< "portable", "tensor cores", …

bool matmul_backend_available(DType type, MatmulBackend backend);
bool attention_backend_available(DType type, AttentionBackend backend);

struct AttentionBackends {
  AttentionBackend forward = AttentionBackend::portable;
  AttentionBackend backward = AttentionBackend::portable;
  bool operator==(const AttentionBackends&) const = default;
};

/// Back ends for the value `kind` of [precision] attention. On devices, `automatic` is the first
/// available back end of cuDNN, tensor cores and portable in the forward pass, and of tensor cores
/// and portable in the backward pass, because cuDNN's gradient stores S² values per head. On
/// devices, error if `kind` names an unavailable back end. On hosts, `automatic` is native for bf16
/// with AMX; all other values and types are portable.
AttentionBackends attention_backends_of(DType type, AttentionKind kind);

/// The back ends that a Handle's kernels use.
class KernelChoice {
 public:
  /// Default back ends of this build and processor. Products on hosts do not use the installed
  /// BLAS, because it may be the slow reference implementation. Attention:
  /// AttentionKind::automatic.
  KernelChoice();

  /// Back end of products. A product that cuBLASLt does not support is computed by another back
  /// end. Error if `type` is not a floating-point type.
  MatmulBackend products(DType type) const;
  /// Error if the back end is unavailable for the type.
  KernelChoice& set_products(DType type, MatmulBackend backend);

  /// Back ends of attention. Calls that a back end does not support use the next back end of this
  /// order: cuDNN, tensor cores, portable. fp32 and fp64 always use the portable back end.
  AttentionBackends attention(DType type) const;
  /// Error if a back end is unavailable for the type.
  KernelChoice& set_attention(DType type, AttentionBackends backends);

  /// Whether cuBLASLt may round the operands of fp32 products to tf32, so that tensor cores can
  /// multiply them. No effect on other back ends.
  bool tf32 = false;

  /// Description of the back end of products for logs, such as "oneDNN 2.6.3" or "AMX".
  std::string products_description(DType type) const;
  /// Names of the back ends for logs: "forward by cuDNN 9.19.0, backward by tensor cores", or "".
  std::string attention_description(DType type) const;

 private:
  std::array<MatmulBackend, 4> products_;       // by type: fp64, fp32, bf16, fp16
  std::array<AttentionBackends, 2> attention_;  // by type: bf16, fp16
};

}  // namespace trireme::kernels
