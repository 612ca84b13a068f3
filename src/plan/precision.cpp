#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>
#include <trireme/plan/offload.hpp>
#include <trireme/plan/precision.hpp>

namespace trireme::plan {
namespace {

bool has_cudnn() {
#ifdef TRIREME_HAS_CUDNN
  return true;
#else
  return false;
#endif
}

}  // namespace

bool has_cublaslt() {
#ifdef TRIREME_HAS_CUBLASLT
  return true;
#else
  return false;
#endif
}

std::string tf32_note(const deck::PrecisionConfig& precision) {
  if (!precision.tf32) return "";
  return has_cublaslt() ? "matrix products round their factors to 11 bits"
                        : "no effect: this installation's matrix products are not by cuBLASLt";
}

bool lacks_cudnn() {
  return has_device() && !has_cudnn();
}

void expect_attention(const deck::Deck& deck, bool lacks_cudnn) {
  check_usage(!lacks_cudnn || deck.config.precision.attention != AttentionKind::cudnn,
              deck.cite("precision", "attention"),
              " is not possible: this installation was built without cuDNN; choose attention = "
              "\"auto\", or configure with -DTRIREME_CUDNN=ON");
}

bool has_cudnn_gradient(const deck::PrecisionConfig& precision) {
  return has_cudnn() && precision.attention == AttentionKind::cudnn;
}

std::string attention_note(const deck::PrecisionConfig& precision) {
  if (precision.attention == AttentionKind::automatic) return "";
  if (!has_device())
    return text(name_of(precision.attention),
                precision.attention == AttentionKind::portable ? "" : ", which has no effect",
                ": this installation's kernels run on the host");
  switch (precision.attention) {
    case AttentionKind::automatic:
    case AttentionKind::portable:
      return "portable kernels, those of hosts";
    case AttentionKind::tensor_cores:
      return "kernels for tensor cores";
    case AttentionKind::cudnn:
      return "cuDNN, whose gradients take S^2 numbers per head";
  }
  return "";
}

}  // namespace trireme::plan
