#include <trireme/plan/precision.hpp>

namespace trireme::plan {

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

}  // namespace trireme::plan
