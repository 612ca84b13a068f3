#include <trireme/base/check.hpp>
#include <trireme/kernels/attention.hpp>
#include <trireme/kernels/flash_attention.hpp>

#include <array>

namespace trireme::kernels {
namespace {

std::array<bool, 2> portable_only{};  // of bf16 and fp16

bool is_narrow_type(DType type) {
  return type == DType::bf16 || type == DType::fp16;
}

}  // namespace

std::string_view name_of(AttentionBackend backend) {
  switch (backend) {
    case AttentionBackend::portable:
      return "portable";
    case AttentionBackend::tensor_cores:
      return "tensor cores";
  }
  return "";
}

bool attention_backend_available(DType type, AttentionBackend backend) {
  return backend == AttentionBackend::portable || (is_narrow_type(type) && flash_available());
}

AttentionBackend attention_backend(DType type) {
  const bool portable = !is_narrow_type(type) || portable_only[type == DType::bf16 ? 0 : 1];
  return portable || !flash_available() ? AttentionBackend::portable
                                        : AttentionBackend::tensor_cores;
}

void set_attention_backend(DType type, AttentionBackend backend) {
  check(attention_backend_available(type, backend), "attention of ", trireme::name_of(type),
        " is not available on ", name_of(backend));
  if (is_narrow_type(type))
    portable_only[type == DType::bf16 ? 0 : 1] = backend == AttentionBackend::portable;
}

}  // namespace trireme::kernels
