// Fixed rules that choose back ends, and the availability of back ends in this build.
#include <trireme/kernels/kernel_choice.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>
#include <trireme/kernels/bf16_tiles.hpp>
#include <trireme/kernels/cublaslt.hpp>
#include <trireme/kernels/cudnn_attention.hpp>
#include <trireme/kernels/flash_attention.hpp>

#if defined(TRIREME_HAS_ONEDNN)
#include <oneapi/dnnl/dnnl.h>
#endif

#include <algorithm>

namespace trireme::kernels {
namespace {

#if defined(TRIREME_HAS_ONEDNN)
constexpr bool has_onednn = exec_on_host;
#else
constexpr bool has_onednn = false;
#endif

constexpr std::array types{DType::fp64, DType::fp32, DType::bf16, DType::fp16};

bool is_two_bytes(DType type) {
  return type == DType::bf16 || type == DType::fp16;
}

std::size_t index_of(DType type) {
  const auto* found = std::ranges::find(types, type);
  check(found != types.end(), "there are no matrix products of ", trireme::name_of(type),
        "; expected fp64, fp32, bf16 or fp16");
  return static_cast<std::size_t>(found - types.begin());
}

MatmulBackend default_products(DType type) {
  if (!exec_on_host && has_cublaslt()) return MatmulBackend::cublaslt;
  if (matmul_backend_available(type, MatmulBackend::native) &&
      bf16_instructions() != Bf16Instructions::plain)
    return MatmulBackend::native;
  if (is_two_bytes(type)) return MatmulBackend::widened;
  if (!exec_on_host) return MatmulBackend::kokkos_kernels;
  return type == DType::fp32 && has_onednn ? MatmulBackend::onednn : MatmulBackend::tiled;
}

void expect_available(DType type, AttentionBackend backend) {
  check(attention_backend_available(type, backend), "attention of ", trireme::name_of(type),
        " is not available on ", name_of(backend), "; choose [precision] attention = \"auto\"");
}

}  // namespace

std::string_view name_of(MatmulBackend backend) {
  switch (backend) {
    case MatmulBackend::tiled:
      return "tiled";
    case MatmulBackend::kokkos_kernels:
      return "Kokkos Kernels";
    case MatmulBackend::onednn:
      return "oneDNN";
    case MatmulBackend::cublaslt:
      return "cuBLASLt";
    case MatmulBackend::widened:
      return "widened";
    case MatmulBackend::native:
      return "bf16 instructions";
  }
  return "";
}

std::string_view name_of(AttentionBackend backend) {
  switch (backend) {
    case AttentionBackend::portable:
      return "portable";
    case AttentionBackend::tensor_cores:
      return "tensor cores";
    case AttentionBackend::cudnn:
      return "cuDNN";
    case AttentionBackend::native:
      return "bf16 instructions";
  }
  return "";
}

bool matmul_backend_available(DType type, MatmulBackend backend) {
  const bool narrow = is_two_bytes(type);
  if (!narrow && type != DType::fp32 && type != DType::fp64) return false;
  switch (backend) {
    case MatmulBackend::tiled:
    case MatmulBackend::kokkos_kernels:
      return !narrow;
    case MatmulBackend::onednn:
      return has_onednn && type == DType::fp32;
    case MatmulBackend::cublaslt:
      return has_cublaslt();
    case MatmulBackend::widened:
      return narrow;
    case MatmulBackend::native:
      return exec_on_host && type == DType::bf16;
  }
  return false;
}

bool attention_backend_available(DType type, AttentionBackend backend) {
  switch (backend) {
    case AttentionBackend::portable:
      return true;
    case AttentionBackend::tensor_cores:
      return is_two_bytes(type) && flash_available();
    case AttentionBackend::cudnn:
      return is_two_bytes(type) && has_cudnn();
    case AttentionBackend::native:
      return exec_on_host && type == DType::bf16;
  }
  return false;
}

AttentionBackends attention_backends_of(DType type, AttentionKind kind) {
  if (exec_on_host) {
    const bool native = kind == AttentionKind::automatic &&
                        attention_backend_available(type, AttentionBackend::native) &&
                        bf16_instructions() == Bf16Instructions::amx;
    return native ? AttentionBackends{AttentionBackend::native, AttentionBackend::native}
                  : AttentionBackends{};
  }
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

KernelChoice::KernelChoice()
    : attention_{attention_backends_of(DType::bf16, AttentionKind::automatic),
                 attention_backends_of(DType::fp16, AttentionKind::automatic)} {
  std::ranges::transform(types, products_.begin(), default_products);
}

MatmulBackend KernelChoice::products(DType type) const {
  return products_[index_of(type)];
}

KernelChoice& KernelChoice::set_products(DType type, MatmulBackend backend) {
  check(matmul_backend_available(type, backend), "matrix products of ", trireme::name_of(type),
        " are not available from ", name_of(backend));
  products_[index_of(type)] = backend;
  return *this;
}

AttentionBackends KernelChoice::attention(DType type) const {
  if (!is_two_bytes(type)) return {};
  return attention_[type == DType::bf16 ? 0 : 1];
}

KernelChoice& KernelChoice::set_attention(DType type, AttentionBackends backends) {
  expect_available(type, backends.forward);
  expect_available(type, backends.backward);
  if (is_two_bytes(type)) attention_[type == DType::bf16 ? 0 : 1] = backends;
  return *this;
}

std::string KernelChoice::products_description(DType type) const {
  const MatmulBackend backend = products(type);
  if (backend == MatmulBackend::widened) return products_description(DType::fp32) + " in fp32";
  if (backend == MatmulBackend::native) return std::string(name_of(bf16_instructions()));
  std::string name(name_of(backend));
#if defined(TRIREME_HAS_ONEDNN)
  if (backend == MatmulBackend::onednn) {
    const dnnl_version_t* version = dnnl_version();
    name = text(name, ' ', version->major, '.', version->minor, '.', version->patch);
  }
#endif
  if (backend != MatmulBackend::cublaslt) return name;
  return text(name, ' ', cublaslt_version(), type == DType::fp32 && tf32 ? " in tf32" : "");
}

std::string KernelChoice::attention_description(DType type) const {
  const AttentionBackends backends = attention(type);
  if (backends == AttentionBackends{}) return "";
  const auto named = [](AttentionBackend backend) {
    if (backend == AttentionBackend::native) return std::string(name_of(bf16_instructions()));
    return text(name_of(backend), backend == AttentionBackend::cudnn ? " " + cudnn_version() : "");
  };
  return text("forward by ", named(backends.forward), ", backward by ", named(backends.backward));
}

}  // namespace trireme::kernels
