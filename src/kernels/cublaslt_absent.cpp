#include <trireme/kernels/cublaslt.hpp>

#if !defined(TRIREME_HAS_CUBLASLT)
#include <trireme/base/check.hpp>

namespace trireme::kernels {

bool has_cublaslt() {
  return false;
}

std::string cublaslt_version() {
  return "";
}

struct CublasLt::State {};

CublasLt::CublasLt(void*, Bytes) {
  check(false, "this build has no cuBLASLt");
}

CublasLt::~CublasLt() = default;

bool CublasLt::multiply(const LtProduct&, void*) {
  return false;
}

std::int64_t CublasLt::questions() const {
  return 0;
}

std::vector<std::string> CublasLt::choices() const {
  return {};
}

}  // namespace trireme::kernels
#endif
