#include <trireme/kernels/cudnn_attention.hpp>

#if !defined(TRIREME_HAS_CUDNN)
#include <trireme/base/check.hpp>

namespace trireme::kernels {

bool has_cudnn() {
  return false;
}

std::string cudnn_version() {
  return "";
}

struct CudnnAttention::State {};

CudnnAttention::CudnnAttention() {
  check(false, "this build has no cuDNN");
}

CudnnAttention::CudnnAttention(const std::string&, int) : CudnnAttention() {}

CudnnAttention::~CudnnAttention() = default;

std::optional<Bytes> CudnnAttention::workspace(const CudnnAttentionCall&) {
  return std::nullopt;
}

bool CudnnAttention::run(const CudnnAttentionCall&, const CudnnAttentionArrays&, void*, Bytes,
                         void*) {
  return false;
}

std::vector<std::string> CudnnAttention::choices() const {
  return {};
}

}  // namespace trireme::kernels
#endif
