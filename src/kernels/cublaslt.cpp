// cuBLASLt on pointers. For each kind of product (Kind), a Plan stores the descriptors and the
// algorithm that the library's heuristics chose once.
#include <trireme/kernels/cublaslt.hpp>

#if defined(TRIREME_HAS_CUBLASLT)
#include <trireme/base/check.hpp>

#include <cublasLt.h>

#include <algorithm>
#include <compare>
#include <map>
#include <optional>

namespace trireme::kernels {
namespace {

template <auto destroy>
struct Destroyer {
  template <class Opaque>
  void operator()(Opaque* opaque) const {
    destroy(opaque);
  }
};
template <class Handle, auto destroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroyer<destroy>>;
using LibraryHandle = Owned<cublasLtHandle_t, cublasLtDestroy>;
using Operation = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

constexpr std::size_t cublaslt_alignment = 256;

void expect_success(cublasStatus_t status, const char* call) {
  check(status == CUBLAS_STATUS_SUCCESS, call, ": ", cublasLtGetStatusString(status));
}

cudaDataType_t library_type(DType type) {
  switch (type) {
    case DType::fp64:
      return CUDA_R_64F;
    case DType::fp32:
      return CUDA_R_32F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::fp16:
      return CUDA_R_16F;
    case DType::int64:
    case DType::int32:
    case DType::uint32:
    case DType::uint16:
    case DType::uint8:
      break;
  }
  check(false, "cuBLASLt has no products of ", name_of(type));
  return {};
}

cudaDataType_t library_type(DType type, LtFp8 fp8) {
  switch (fp8) {
    case LtFp8::e4m3:
      return CUDA_R_8F_E4M3;
    case LtFp8::e5m2:
      return CUDA_R_8F_E5M2;
    case LtFp8::none:
      break;
  }
  return library_type(type);
}

bool is_fp8(const LtProduct& p) {
  return p.fp8_a != LtFp8::none;
}

bool is_wide(const LtProduct& p) {
  return !is_fp8(p) && p.input == DType::fp64;
}

/// Type of the sums: fp64 for fp64 operands, otherwise fp32. tf32 only rounds the operands.
cublasComputeType_t compute_type(const LtProduct& p) {
  if (is_fp8(p)) return CUBLAS_COMPUTE_32F;
  if (is_wide(p)) return CUBLAS_COMPUTE_64F;
  return p.tf32 && p.input == DType::fp32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

/// The largest power of 2 that divides an address, at most the alignment of arrays in arenas.
std::uint32_t alignment_of(const void* pointer) {
  constexpr std::uintptr_t most = 64;
  const auto address = reinterpret_cast<std::uintptr_t>(pointer) | most;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

/// All properties that the choice of an algorithm may depend on.
struct Kind {
  DType input, output;
  LtFp8 fp8_a, fp8_b;
  bool tf32, transposed_a, transposed_b;
  std::int64_t rows, columns, depth, stride_a, stride_b, stride_c, stride_auxiliary;
  LtEpilogue epilogue;
  bool has_bias;
  std::uint32_t alignment_a, alignment_b, alignment_c, alignment_bias, alignment_auxiliary;

  explicit Kind(const LtProduct& p)
      : input(p.input),
        output(p.output),
        fp8_a(p.fp8_a),
        fp8_b(p.fp8_b),
        tf32(p.tf32),
        transposed_a(p.transposed_a),
        transposed_b(p.transposed_b),
        rows(p.rows),
        columns(p.columns),
        depth(p.depth),
        stride_a(p.stride_a),
        stride_b(p.stride_b),
        stride_c(p.stride_c),
        stride_auxiliary(p.stride_auxiliary),
        epilogue(p.epilogue),
        has_bias(p.bias != nullptr),
        alignment_a(alignment_of(p.a)),
        alignment_b(alignment_of(p.b)),
        alignment_c(alignment_of(p.c)),
        alignment_bias(alignment_of(p.bias)),
        alignment_auxiliary(alignment_of(p.auxiliary)) {}

  auto operator<=>(const Kind&) const = default;
};

struct Plan {
  Operation operation;
  Layout first, second, result;  // layouts of b, a and c
  std::optional<cublasLtMatmulAlgo_t> algorithm;
  std::size_t workspace_bytes = 0;
  float waves = 0;
};

template <class Value>
void set(const Operation& operation, cublasLtMatmulDescAttributes_t what, const Value& value) {
  expect_success(cublasLtMatmulDescSetAttribute(operation.get(), what, &value, sizeof value),
                 "cublasLtMatmulDescSetAttribute");
}

template <class Value>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t what,
         const Value& value) {
  expect_success(cublasLtMatmulPreferenceSetAttribute(preference.get(), what, &value, sizeof value),
                 "cublasLtMatmulPreferenceSetAttribute");
}

cublasLtEpilogue_t library_epilogue(const LtProduct& p) {
  switch (p.epilogue) {
    case LtEpilogue::none:
      return CUBLASLT_EPILOGUE_DEFAULT;
    case LtEpilogue::bias:
      return CUBLASLT_EPILOGUE_BIAS;
    case LtEpilogue::gelu:
      return p.bias == nullptr ? CUBLASLT_EPILOGUE_GELU_AUX : CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case LtEpilogue::gelu_gradient:
      return CUBLASLT_EPILOGUE_DGELU;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

/// Sets the pointers that are attributes of the descriptor: bias, auxiliary matrix and scales of
/// fp8. The heuristics also read these pointers, for the alignment of the arrays.
void point(const Operation& operation, const LtProduct& p) {
  if (p.bias != nullptr) set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  if (p.auxiliary != nullptr)
    set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.auxiliary);
  if (!is_fp8(p)) return;
  set(operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.scale_b);
  set(operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.scale_a);
}

Operation make_operation(const LtProduct& p) {
  cublasLtMatmulDesc_t made = nullptr;
  expect_success(
      cublasLtMatmulDescCreate(&made, compute_type(p), is_wide(p) ? CUDA_R_64F : CUDA_R_32F),
      "cublasLtMatmulDescCreate");
  Operation operation(made);
  const auto transpose = [](bool yes) -> std::int32_t { return yes ? CUBLAS_OP_T : CUBLAS_OP_N; };
  set(operation, CUBLASLT_MATMUL_DESC_TRANSA, transpose(p.transposed_b));
  set(operation, CUBLASLT_MATMUL_DESC_TRANSB, transpose(p.transposed_a));
  set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<std::uint32_t>(library_epilogue(p)));
  if (p.auxiliary != nullptr)
    set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.stride_auxiliary);
  point(operation, p);
  return operation;
}

/// Layout of a row-major [rows, columns] matrix: the column-major library sees its transpose.
Layout make_layout(cudaDataType_t type, std::int64_t rows, std::int64_t columns,
                   std::int64_t stride) {
  cublasLtMatrixLayout_t made = nullptr;
  expect_success(cublasLtMatrixLayoutCreate(&made, type, static_cast<std::uint64_t>(columns),
                                            static_cast<std::uint64_t>(rows), stride),
                 "cublasLtMatrixLayoutCreate");
  return Layout(made);
}

/// Allowed reductions of partial sums (split-K): the partial sums are stored in the type of the
/// sum, and a separate kernel adds them in a fixed order and rounds once.
constexpr std::uint32_t reductions =
    CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

Preference make_preference(const Kind& kind, Bytes workspace_bytes) {
  cublasLtMatmulPreference_t made = nullptr;
  expect_success(cublasLtMatmulPreferenceCreate(&made), "cublasLtMatmulPreferenceCreate");
  Preference preference(made);
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
      static_cast<std::uint64_t>(workspace_bytes));
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, kind.alignment_b);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, kind.alignment_a);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, kind.alignment_c);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, kind.alignment_c);
  return preference;
}

std::uint32_t setting(const cublasLtMatmulAlgo_t& algorithm,
                      cublasLtMatmulAlgoConfigAttributes_t what) {
  std::uint32_t value = 0;
  std::size_t written = 0;
  expect_success(
      cublasLtMatmulAlgoConfigGetAttribute(&algorithm, what, &value, sizeof value, &written),
      "cublasLtMatmulAlgoConfigGetAttribute");
  return value;
}

std::string description(const Kind& k) {
  const auto operand = [](LtFp8 x) { return x == LtFp8::e4m3 ? "e4m3" : "e5m2"; };
  const bool fp8 = k.fp8_a != LtFp8::none;
  std::string line =
      fp8 ? text(operand(k.fp8_a), " × ", operand(k.fp8_b)) : std::string(name_of(k.input));
  if (fp8 || k.output != k.input) line += text(" to ", name_of(k.output));
  if (k.tf32) line += " by tf32";
  line += text(' ', k.rows, " × ", k.columns, " × ", k.depth);
  if (k.transposed_a) line += ", a transposed";
  if (k.transposed_b) line += ", b transposed";
  if (k.has_bias) line += ", bias";
  if (k.epilogue == LtEpilogue::gelu) line += ", GELU";
  if (k.epilogue == LtEpilogue::gelu_gradient) line += ", gradient of GELU";
  return line;
}

std::string description(const Plan& plan) {
  if (!plan.algorithm) return "none in the library";
  const auto& a = *plan.algorithm;
  return text("algorithm ", setting(a, CUBLASLT_ALGO_CONFIG_ID), ", tile ",
              setting(a, CUBLASLT_ALGO_CONFIG_TILE_ID), ", stages ",
              setting(a, CUBLASLT_ALGO_CONFIG_STAGES_ID), ", parts ",
              setting(a, CUBLASLT_ALGO_CONFIG_SPLITK_NUM), ", workspace ", plan.workspace_bytes,
              " B, waves ", plan.waves);
}

/// Whether the library's documentation allows the product's types, form, strides and alignment.
bool is_documented(const LtProduct& p, const Kind& kind) {
  if (is_fp8(p))
    return p.fp8_b != LtFp8::none && (p.output == DType::bf16 || p.output == DType::fp32) &&
           !p.transposed_a && p.transposed_b && p.auxiliary == nullptr &&
           (p.rows | p.columns | p.depth | p.stride_a | p.stride_b | p.stride_c) % 16 == 0;
  const bool narrow = p.input == DType::bf16 || p.input == DType::fp16;
  if (p.output != p.input && !(narrow && p.output == DType::fp32)) return false;
  if (p.auxiliary == nullptr) return true;
  return p.stride_auxiliary % 8 == 0 && kind.alignment_auxiliary >= 16;
}

}  // namespace

struct CublasLt::State {
  LibraryHandle library;
  void* workspace;
  Bytes workspace_bytes;
  std::map<Kind, Plan> plans;
  std::int64_t questions = 0;

  /// Stores the heuristics' first result, the estimated fastest algorithm, if there is one.
  void choose(Plan& plan, const Kind& kind) {
    const Preference preference = make_preference(kind, workspace_bytes);
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    ++questions;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        library.get(), plan.operation.get(), plan.first.get(), plan.second.get(), plan.result.get(),
        plan.result.get(), preference.get(), 1, &found, &count);
    // Either status reports an unsupported combination.
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return;
    expect_success(status, "cublasLtMatmulAlgoGetHeuristic");
    if (count == 0 || found.state != CUBLAS_STATUS_SUCCESS) return;
    const auto scheme = setting(found.algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
    check((scheme & ~reductions) == 0, "cuBLASLt chose reduction scheme ", scheme,
          ", expected one of ", reductions);
    plan.algorithm = found.algo;
    plan.workspace_bytes = found.workspaceSize;
    plan.waves = found.wavesCount;
  }

  Plan make_plan(const LtProduct& p, const Kind& kind) {
    Plan plan;
    if (!is_documented(p, kind)) return plan;
    plan.operation = make_operation(p);
    const cudaDataType_t a = library_type(p.input, p.fp8_a);
    const cudaDataType_t b = library_type(p.input, p.fp8_b);
    plan.first = p.transposed_b ? make_layout(b, p.columns, p.depth, p.stride_b)
                                : make_layout(b, p.depth, p.columns, p.stride_b);
    plan.second = p.transposed_a ? make_layout(a, p.depth, p.rows, p.stride_a)
                                 : make_layout(a, p.rows, p.depth, p.stride_a);
    plan.result = make_layout(library_type(p.output), p.rows, p.columns, p.stride_c);
    choose(plan, kind);
    return plan;
  }

  const Plan& plan_of(const LtProduct& p) {
    const Kind kind(p);
    const auto found = plans.find(kind);
    return found != plans.end() ? found->second
                                : plans.emplace(kind, make_plan(p, kind)).first->second;
  }
};

CublasLt::CublasLt(void* workspace, Bytes bytes) : state_(std::make_unique<State>()) {
  cublasLtHandle_t made = nullptr;
  expect_success(cublasLtCreate(&made), "cublasLtCreate");
  state_->library.reset(made);
  // cublasLtMatmul() refuses a workspace that does not begin at a multiple of 256 bytes, and views
  // of Kokkos do not.
  std::size_t space = static_cast<std::size_t>(bytes);
  state_->workspace = std::align(cublaslt_alignment, 1, workspace, space);
  check(state_->workspace != nullptr, "cuBLASLt's workspace has only ", bytes, " bytes");
  state_->workspace_bytes = static_cast<Bytes>(space);
}

CublasLt::~CublasLt() = default;

bool CublasLt::multiply(const LtProduct& p, void* stream) {
  check(p.rows > 0 && p.columns > 0 && p.depth > 0, "cuBLASLt cannot compute an empty product, ",
        p.rows, " × ", p.columns, " × ", p.depth);
  const bool reads_auxiliary = p.epilogue == LtEpilogue::gelu_gradient;
  check((p.auxiliary != nullptr) == (p.epilogue == LtEpilogue::gelu || reads_auxiliary) &&
            (p.epilogue != LtEpilogue::bias || p.bias != nullptr),
        "cuBLASLt: epilogue and arrays do not match");
  const Plan& plan = state_->plan_of(p);
  if (!plan.algorithm) return false;
  point(plan.operation, p);
  const double wide[] = {p.alpha, p.beta};
  const float narrow[] = {static_cast<float>(p.alpha), static_cast<float>(p.beta)};
  const void* alpha = is_wide(p) ? static_cast<const void*>(wide) : narrow;
  const void* beta = is_wide(p) ? static_cast<const void*>(wide + 1) : narrow + 1;
  const cublasStatus_t status = cublasLtMatmul(
      state_->library.get(), plan.operation.get(), alpha, p.b, plan.first.get(), p.a,
      plan.second.get(), beta, p.c, plan.result.get(), p.c, plan.result.get(), &*plan.algorithm,
      state_->workspace, static_cast<std::size_t>(state_->workspace_bytes),
      static_cast<cudaStream_t>(stream));
  check(status == CUBLAS_STATUS_SUCCESS, "cublasLtMatmul: ", cublasLtGetStatusString(status), " (",
        description(Kind(p)), ": ", description(plan),
        "); CUBLASLT_LOG_LEVEL=5 may print the reason");
  return true;
}

std::int64_t CublasLt::questions() const {
  return state_->questions;
}

std::vector<std::string> CublasLt::choices() const {
  std::vector<std::string> lines;
  for (const auto& [kind, plan] : state_->plans)
    lines.push_back(text(description(kind), ": ", description(plan)));
  return lines;
}

bool has_cublaslt() {
  return true;
}

std::string cublaslt_version() {
  const std::size_t version = cublasLtGetVersion();
  return text(version / 10000, '.', version / 100 % 100, '.', version % 100);
}

}  // namespace trireme::kernels
#endif
