#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>
#include <trireme/kernels/attention.hpp>
#include <trireme/kernels/cudnn_attention.hpp>
#include <trireme/kernels/flash_attention.hpp>

#include <array>
#include <optional>

namespace trireme::kernels {
namespace {

std::array<std::optional<AttentionBackends>, 2> chosen{};  // of bf16 and fp16

bool is_narrow_type(DType type) {
  return type == DType::bf16 || type == DType::fp16;
}

std::optional<AttentionBackends>& chosen_for(DType type) {
  return chosen[type == DType::bf16 ? 0 : 1];
}

void expect_available(DType type, AttentionBackend backend) {
  check(attention_backend_available(type, backend), "attention of ", trireme::name_of(type),
        " is not available on ", name_of(backend), "; choose [precision] attention = \"auto\"");
}

}  // namespace

std::string_view name_of(AttentionBackend backend) {
  switch (backend) {
    case AttentionBackend::portable:
      return "portable";
    case AttentionBackend::tensor_cores:
      return "tensor cores";
    case AttentionBackend::cudnn:
      return "cuDNN";
  }
  return "";
}

bool attention_backend_available(DType type, AttentionBackend backend) {
  switch (backend) {
    case AttentionBackend::portable:
      return true;
    case AttentionBackend::tensor_cores:
      return is_narrow_type(type) && flash_available();
    case AttentionBackend::cudnn:
      return is_narrow_type(type) && has_cudnn();
  }
  return false;
}

AttentionBackends attention_backends_of(DType type, AttentionKind kind) {
  if (exec_on_host) return {};
  const auto first_available = [&](std::initializer_list<AttentionBackend> backends) {
    for (const AttentionBackend backend : backends)
      if (attention_backend_available(type, backend)) return backend;
    return AttentionBackend::portable;
  };
  const auto named = [&](AttentionBackend backend) {
    expect_available(type, backend);
    return AttentionBackends{backend, backend};
  };
  switch (kind) {
    case AttentionKind::automatic:
      return {first_available({AttentionBackend::cudnn, AttentionBackend::tensor_cores}),
              first_available({AttentionBackend::tensor_cores})};
    case AttentionKind::portable:
      return {};
    case AttentionKind::tensor_cores:
      return named(AttentionBackend::tensor_cores);
    case AttentionKind::cudnn:
      return named(AttentionBackend::cudnn);
  }
  return {};
}

AttentionBackends attention_backends(DType type) {
  if (is_narrow_type(type) && chosen_for(type)) return *chosen_for(type);
  return attention_backends_of(type, AttentionKind::automatic);
}

std::string attention_description(DType type) {
  const AttentionBackends backends = attention_backends(type);
  if (backends == AttentionBackends{}) return "";
  const auto named = [](AttentionBackend backend) {
    return text(name_of(backend), backend == AttentionBackend::cudnn ? " " + cudnn_version() : "");
  };
  return text("forward by ", named(backends.forward), ", backward by ", named(backends.backward));
}

void set_attention_backends(DType type, AttentionBackends backends) {
  expect_available(type, backends.forward);
  expect_available(type, backends.backward);
  if (is_narrow_type(type)) chosen_for(type) = backends;
}

}  // namespace trireme::kernels
