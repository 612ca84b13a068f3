#include <trireme/kernels/handle.hpp>

#include <trireme/kernels/cublaslt.hpp>
#include <trireme/kernels/cudnn_attention.hpp>

namespace trireme::kernels {
namespace {

constexpr Bytes partial_sum_bytes = exec_on_host ? 0 : column_sum_bytes;

}  // namespace

Bytes workspace_bytes() {
  return (has_cublaslt() ? cublaslt_workspace_bytes : 0) + partial_sum_bytes;
}

WidenedOperands::WidenedOperands() {
  constexpr std::int64_t elements = widened_block * widened_block;
  a = arena.take<float>(elements);
  b = arena.take<float>(elements);
  sum = arena.take<float>(elements);
}

Handle::Handle(const KernelChoice& choice, const Exec& exec) : exec_(exec), choice_(choice) {
  if (kernels::workspace_bytes() == 0) return;
  arena_ = Arena("kernel workspace", kernels::workspace_bytes());
  if (has_cublaslt()) {
    library_workspace_ = arena_.take<std::byte>(cublaslt_workspace_bytes);
    cublaslt_ = std::make_unique<CublasLt>(library_workspace_.data(), cublaslt_workspace_bytes);
  }
  partial_sums_ = arena_.take<std::byte>(partial_sum_bytes);
}

Handle::~Handle() = default;

void* Handle::stream() const {
#if defined(KOKKOS_ENABLE_CUDA)
  if constexpr (std::is_same_v<Exec, Kokkos::Cuda>) return exec_.cuda_stream();
#endif
  return nullptr;
}

void Handle::prepare_products(DType type) const {
  const bool narrow = type == DType::bf16 || type == DType::fp16;
  if (narrow) widened_operands();  // also with cuBLASLt, which may not support all products
}

CudnnAttention& Handle::cudnn() const {
  if (!cudnn_) cudnn_ = std::make_unique<CudnnAttention>();
  return *cudnn_;
}

const WidenedOperands& Handle::widened_operands() const {
  if (!widened_) widened_ = std::make_unique<WidenedOperands>();
  return *widened_;
}

std::vector<std::string> Handle::product_choices() const {
  return cublaslt_ ? cublaslt_->choices() : std::vector<std::string>();
}

std::vector<std::string> Handle::attention_choices() const {
  return cudnn_ ? cudnn_->choices() : std::vector<std::string>();
}

}  // namespace trireme::kernels
