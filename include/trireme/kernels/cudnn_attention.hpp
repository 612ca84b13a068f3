#pragma once

#include <trireme/base/types.hpp>

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

/// cuDNN's fused attention without Kokkos: pointers, sizes and a stream.
namespace trireme::kernels {

/// Whether this build has cuDNN; otherwise CudnnAttention's constructor fails.
bool has_cudnn();

/// Attention as defined in attention.hpp, for whole groups of heads, without window, soft cap,
/// documents or dropout: B samples of S tokens, H heads over Hkv heads of keys and values, each of
/// size K. Strides are in elements from token to token.
struct CudnnAttentionCall {
  DType type = DType::bf16;  ///< bf16 or fp16
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

/// The forward pass computes o and logsumexp from qkv; the backward pass computes dqkv from all
/// other arrays. All arrays begin at multiples of 16 bytes.
struct CudnnAttentionArrays {
  void* o = nullptr;           ///< [B·S, H·K]
  float* logsumexp = nullptr;  ///< [B, H, S]
  const void* qkv = nullptr;   ///< [B·S, (H + 2 Hkv)·K]
  const void* grad = nullptr;  ///< [B·S, H·K]
  void* dqkv = nullptr;        ///< [B·S, (H + 2 Hkv)·K]
};

/// cuDNN's handle, and its plans so far, one for each kind of call. cuDNN's heuristics choose a
/// plan without timing, and gradients are summed in a fixed order. A CudnnAttention belongs to the
/// device that is current at construction. Only one stream at a time may use it.
class CudnnAttention {
 public:
  CudnnAttention();
  /// For planning only. `device`: description of a device that need not be present, in cuDNN's
  /// format (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION). `compute_capability`: 90 for 9.0.
  CudnnAttention(const std::string& device, int compute_capability);
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  /// Workspace of the call in bytes; empty if cuDNN has no kernel for the call.
  std::optional<Bytes> workspace(const CudnnAttentionCall& call);

  /// Queues the call on `stream` (a cudaStream_t) and returns at once. Returns false, with nothing
  /// queued, if cuDNN has no kernel for the call or the kernel needs more than `bytes` bytes of
  /// workspace. `workspace` is aligned to 16 bytes.
  bool run(const CudnnAttentionCall& call, const CudnnAttentionArrays& arrays, void* workspace,
           Bytes bytes, void* stream);

  /// One line per kind of call, such as "bf16 forward, 4 × 2048 tokens, 24 heads over 24 of 96:
  /// eng2_k24=7, 256 bytes", or with the reason why there is no kernel.
  std::vector<std::string> choices() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Version of cuDNN, such as "9.19.0"; empty in builds without cuDNN.
std::string cudnn_version();

}  // namespace trireme::kernels
