#pragma once

#include <trireme/base/types.hpp>

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

/// cuDNN's fused attention without Kokkos: pointers, sizes and a stream. Without a device it can
/// plan for a device that is only described to it; a test uses this.
namespace trireme::kernels {

/// Whether this build has the library (TRIREME_HAS_CUDNN). Without it, CudnnAttention's constructor
/// fails.
bool has_cudnn();

/// Attention as defined in attention.hpp, for whole groups of heads and without dropout: B samples
/// of S tokens, H heads over Hkv heads of keys and values, each of size K. Strides are in elements
/// from token to token.
struct CudnnAttentionCall {
  DType type = DType::bf16;  ///< or fp16
  bool backward = false;
  bool causal = true;
  float scale = 0;
  std::int64_t batch = 0;            ///< B
  std::int64_t sequence = 0;         ///< S
  std::int64_t heads = 0;            ///< H, a multiple of Hkv
  std::int64_t key_value_heads = 0;  ///< Hkv
  std::int64_t head_size = 0;        ///< K
  std::int64_t qkv_stride = 0;
  std::int64_t o_stride = 0;
  std::int64_t grad_stride = 0;  ///< stride of the gradient of o; 0 in the forward pass
  std::int64_t dqkv_stride = 0;
  auto operator<=>(const CudnnAttentionCall&) const = default;
};

/// Forward writes o and logsumexp from qkv; backward writes dqkv from all other arrays. Arrays
/// begin at multiples of 16 bytes.
struct CudnnAttentionArrays {
  void* o = nullptr;           ///< [B·S, H·K]
  float* logsumexp = nullptr;  ///< [B, H, S]
  const void* qkv = nullptr;   ///< [B·S, (H + 2 Hkv)·K]
  const void* grad = nullptr;  ///< [B·S, H·K]
  void* dqkv = nullptr;        ///< [B·S, (H + 2 Hkv)·K]
};

/// The library's handle, and a plan for each kind of call so far. The library's rules choose a plan
/// without timing, and gradients have a fixed order of sums: the same bits in every run. The first
/// call of a kind compiles a kernel, which takes half a second. Belongs to the device that is
/// current at construction, and to one stream at a time.
class CudnnAttention {
 public:
  CudnnAttention();
  /// For planning only: describes a device that need not be present, in the library's format
  /// (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION), and its compute capability, 90 for 9.0.
  CudnnAttention(const std::string& device, int compute_capability);
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  /// Bytes of workspace that the call needs; empty if the library has no kernel for it.
  std::optional<Bytes> workspace(const CudnnAttentionCall& call);

  /// Queues the call on `stream` (a cudaStream_t) and returns. Returns false, with nothing queued,
  /// if the library has no kernel for the call that needs at most `bytes` of workspace. workspace
  /// is 16-byte aligned.
  bool run(const CudnnAttentionCall& call, const CudnnAttentionArrays& arrays, void* workspace,
           Bytes bytes, void* stream);

  /// One line per kind of call: "bf16 forward, 4 × 2048 tokens, 24 heads over 24 of 96: eng2_k24=7,
  /// 256 bytes", or the reason why there is no kernel.
  std::vector<std::string> choices() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Version, "9.19.0"; empty without the library.
std::string cudnn_version();

}  // namespace trireme::kernels
