#include <trireme/kernels/cublaslt.hpp>
#include <trireme/kernels/matmul_workspace.hpp>

#include <map>

namespace trireme::kernels {
namespace {

constexpr Bytes partial_sum_bytes = exec_on_host ? 0 : column_sum_bytes;

std::map<void*, std::unique_ptr<MatmulWorkspace>>& workspaces() {
  static std::map<void*, std::unique_ptr<MatmulWorkspace>> all;
  return all;
}

}  // namespace

Bytes matmul_workspace_bytes() {
  return (has_cublaslt() ? cublaslt_workspace_bytes : 0) + partial_sum_bytes;
}

MatmulWorkspace::MatmulWorkspace() {
  if (matmul_workspace_bytes() == 0) return;
  arena_ = Arena("matmul workspace", matmul_workspace_bytes());
  if (has_cublaslt()) {
    library_workspace_ = arena_.take<std::byte>(cublaslt_workspace_bytes);
    cublaslt_ = std::make_unique<CublasLt>(library_workspace_.data(), cublaslt_workspace_bytes);
  }
  partial_sums_ = arena_.take<std::byte>(partial_sum_bytes);
}

MatmulWorkspace::~MatmulWorkspace() = default;

MatmulWorkspace& matmul_workspace(const Exec& exec) {
  auto& all = workspaces();
  if (all.empty()) Kokkos::push_finalize_hook([] { workspaces().clear(); });
  auto& mine = all[stream_of(exec)];
  if (!mine) mine = std::make_unique<MatmulWorkspace>();
  return *mine;
}

void* stream_of([[maybe_unused]] const Exec& exec) {
#if defined(KOKKOS_ENABLE_CUDA)
  if constexpr (std::is_same_v<Exec, Kokkos::Cuda>) return exec.cuda_stream();
#endif
  return nullptr;
}

}  // namespace trireme::kernels
