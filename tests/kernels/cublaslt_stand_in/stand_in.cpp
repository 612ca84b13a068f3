// The stand-in for cuBLASLt: keeps descriptors, checks each call against the documentation, and
// computes products naively on the host.
#include "kernels/cublaslt_stand_in/stand_in.hpp"

#include <trireme/base/fp8.hpp>
#include <trireme/base/narrow.hpp>

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "kernels/cublaslt_stand_in/product.hpp"

struct cublasLtContext {};

namespace trireme::testing::stand_in {

Record& record() {
  static Record all;
  return all;
}

namespace {

struct Preference {
  std::uint64_t workspace = 0;
  std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::array<std::uint32_t, 4> alignment{256, 256, 256, 256};  // of A, B, C, D
};

struct Algorithm {
  Purpose purpose;
  std::array<std::uint32_t, 4> alignment;
  std::uint32_t auxiliary_alignment, bias_alignment;
  std::int32_t parts;
};

std::vector<Algorithm>& algorithms() {
  static std::vector<Algorithm> all;
  return all;
}

template <class Mine, class Theirs>
cublasStatus_t make(Theirs* made, const Mine& mine) {
  ++record().objects;
  *made = reinterpret_cast<Theirs>(new Mine(mine));
  return CUBLAS_STATUS_SUCCESS;
}

template <class Mine, class Theirs>
cublasStatus_t destroy(Theirs theirs) {
  --record().objects;
  delete reinterpret_cast<Mine*>(theirs);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t invalid() {
  ++record().invalid;
  return CUBLAS_STATUS_INVALID_VALUE;
}

template <class Value>
cublasStatus_t set(Value& value, const void* from, std::size_t bytes) {
  if (from == nullptr || bytes != sizeof value) return invalid();
  std::memcpy(&value, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

std::uint32_t alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer) | 256;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

bool is_fp8(cudaDataType_t type) {
  return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}

/// Before Blackwell: rows by rows only, in multiples of 16, and not E5M2 by E5M2.
bool has_fp8(const Operation& o, const Purpose& p) {
  if (!is_fp8(p.a.type) || !is_fp8(p.b.type) ||
      (p.a.type == CUDA_R_8F_E5M2 && p.b.type == CUDA_R_8F_E5M2))
    return false;
  for (const Layout* x : {&p.a, &p.b, &p.c, &p.d})
    if (x->rows % 16 != 0 || x->columns % 16 != 0 || x->leading % 16 != 0) return false;
  return o.compute == CUBLAS_COMPUTE_32F && o.scale == CUDA_R_32F && o.scale_a != nullptr &&
         o.scale_b != nullptr && p.transpose_a == CUBLAS_OP_T && p.transpose_b == CUBLAS_OP_N &&
         !uses_auxiliary(o.epilogue) && (p.d.type == CUDA_R_16BF || p.d.type == CUDA_R_32F);
}

/// The documented combinations of compute type, scale type and types of A, B and D.
bool has_types(const Operation& o, const Purpose& p) {
  if (p.c.type != p.d.type) return false;
  if (is_fp8(p.a.type) || is_fp8(p.b.type)) return has_fp8(o, p);
  if (p.a.type != p.b.type || o.scale_a != nullptr || o.scale_b != nullptr) return false;
  const auto in = p.a.type;
  const auto out = p.d.type;
  if (o.compute == CUBLAS_COMPUTE_64F)
    return o.scale == CUDA_R_64F && in == CUDA_R_64F && out == CUDA_R_64F;
  if (o.scale != CUDA_R_32F) return false;
  if (o.compute == CUBLAS_COMPUTE_32F_FAST_TF32) return in == CUDA_R_32F && out == CUDA_R_32F;
  if (o.compute != CUBLAS_COMPUTE_32F) return false;
  if (in == CUDA_R_32F) return out == CUDA_R_32F;
  return (in == CUDA_R_16BF || in == CUDA_R_16F) && (out == in || out == CUDA_R_32F);
}

bool shapes_fit(const Purpose& p) {
  const bool ta = p.transpose_a != CUBLAS_OP_N;
  const bool tb = p.transpose_b != CUBLAS_OP_N;
  for (const Layout* x : {&p.a, &p.b, &p.c, &p.d})
    if (x->leading < x->rows || x->rows < 1 || x->columns < 1) return false;
  return (ta ? p.a.columns : p.a.rows) == p.d.rows &&
         (tb ? p.b.rows : p.b.columns) == p.d.columns &&
         (tb ? p.b.columns : p.b.rows) == depth_of(p) && p.c.rows == p.d.rows &&
         p.c.columns == p.d.columns;
}

/// Success, or the documented error of such a call.
cublasStatus_t judge(const Operation& o, const Purpose& p) {
  if (!shapes_fit(p)) return invalid();
  if (uses_bias(o.epilogue) && o.bias == nullptr) return invalid();
  if (uses_auxiliary(o.epilogue) &&
      (o.auxiliary == nullptr || o.auxiliary_leading % 8 != 0 || o.auxiliary_leading < p.d.rows))
    return invalid();
  // The library of CUDA 13 has no algorithm for scales that are not aligned.
  for (const void* const scale : {o.scale_a, o.scale_b})
    if (scale != nullptr && alignment_of(scale) < 16) return CUBLAS_STATUS_NOT_SUPPORTED;
  return has_types(o, p) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

Purpose purpose_of(const Operation& o, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                   cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d) {
  const auto layout = [](cublasLtMatrixLayout_t x) { return *reinterpret_cast<const Layout*>(x); };
  return {o.compute, o.transpose_a, o.transpose_b, o.epilogue, o.auxiliary_leading,
          layout(a), layout(b),     layout(c),     layout(d)};
}

std::size_t workspace_of(const Purpose& p, std::int32_t parts) {
  if (parts == 1) return 0;
  const std::size_t sum = p.compute == CUBLAS_COMPUTE_64F ? 8 : 4;
  return static_cast<std::size_t>(parts * p.d.rows * p.d.columns) * sum;
}

template <class A, class B, class D, class Sum>
void run(const Operation& o, const Purpose& p, const std::array<const void*, 3>& in, void* d,
         const void* alpha, const void* beta, std::int32_t parts, void* workspace) {
  Run<A, B, D, Sum>{o,
                    p,
                    static_cast<const A*>(in[0]),
                    static_cast<const B*>(in[1]),
                    static_cast<const D*>(in[2]),
                    static_cast<D*>(d),
                    *static_cast<const Sum*>(alpha),
                    *static_cast<const Sum*>(beta)}(parts, workspace);
}

}  // namespace
}  // namespace trireme::testing::stand_in

using namespace trireme::testing::stand_in;

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return make(handle, cublasLtContext{});
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return destroy<cublasLtContext>(handle);
}
const char* cublasLtGetStatusString(cublasStatus_t) {
  return "the stand-in's refusal";
}
std::size_t cublasLtGetVersion() {
  return CUBLAS_VERSION;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  return make(made, Operation{compute, scale});
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t x) {
  return destroy<Operation>(x);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t x,
                                              cublasLtMatmulDescAttributes_t what, const void* from,
                                              std::size_t bytes) {
  auto& o = *reinterpret_cast<Operation*>(x);
  if (what == CUBLASLT_MATMUL_DESC_TRANSA) return set(o.transpose_a, from, bytes);
  if (what == CUBLASLT_MATMUL_DESC_TRANSB) return set(o.transpose_b, from, bytes);
  if (what == CUBLASLT_MATMUL_DESC_EPILOGUE) return set(o.epilogue, from, bytes);
  if (what == CUBLASLT_MATMUL_DESC_BIAS_POINTER) return set(o.bias, from, bytes);
  if (what == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER) return set(o.auxiliary, from, bytes);
  if (what == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD) return set(o.auxiliary_leading, from, bytes);
  if (what == CUBLASLT_MATMUL_DESC_A_SCALE_POINTER) return set(o.scale_a, from, bytes);
  if (what == CUBLASLT_MATMUL_DESC_B_SCALE_POINTER) return set(o.scale_b, from, bytes);
  return invalid();  // attributes that kernels/cublaslt.cpp does not use
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type,
                                          std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t leading) {
  return make(made, Layout{type, static_cast<std::int64_t>(rows),
                           static_cast<std::int64_t>(columns), leading});
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t x) {
  return destroy<Layout>(x);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  return make(made, Preference{});
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t x) {
  return destroy<Preference>(x);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t x,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void* from, std::size_t bytes) {
  auto& p = *reinterpret_cast<Preference*>(x);
  if (what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) return set(p.workspace, from, bytes);
  if (what == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) return set(p.reductions, from, bytes);
  if (what == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES) return set(p.alignment[0], from, bytes);
  if (what == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES) return set(p.alignment[1], from, bytes);
  if (what == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES) return set(p.alignment[2], from, bytes);
  if (what == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES) return set(p.alignment[3], from, bytes);
  return invalid();
}

/// Sums of 256 and more numbers are cut in three parts if that is allowed and the workspace has
/// room.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t found[], int* count) {
  ++record().heuristics;
  const auto& o = *reinterpret_cast<const Operation*>(operation);
  const auto& wish = *reinterpret_cast<const Preference*>(preference);
  const Purpose p = purpose_of(o, a, b, c, d);
  *count = 0;
  if (requested < 1) return invalid();
  const cublasStatus_t status = judge(o, p);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (!record().has_products) return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool may = (wish.reductions & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) != 0 &&
                   workspace_of(p, 3) <= wish.workspace;
  const std::int32_t parts = may && depth_of(p) >= 256 ? 3 : 1;
  found[0] = {};
  found[0].algo.data[0] = algorithms().size();
  algorithms().push_back(
      {p, wish.alignment, alignment_of(o.auxiliary), alignment_of(o.bias), parts});
  found[0].workspaceSize = workspace_of(p, parts);
  found[0].state = CUBLAS_STATUS_SUCCESS;
  found[0].wavesCount = 1;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t what,
                                                    void* to, std::size_t bytes,
                                                    std::size_t* written) {
  const std::int32_t parts = algorithms().at(algorithm->data[0]).parts;
  std::uint32_t value = 0;
  if (what == CUBLASLT_ALGO_CONFIG_SPLITK_NUM) value = static_cast<std::uint32_t>(parts);
  if (what == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME)
    value = parts > 1 ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE;
  if (to == nullptr || bytes != sizeof value) return invalid();
  std::memcpy(to, &value, sizeof value);
  *written = sizeof value;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t la, const void* b,
                              cublasLtMatrixLayout_t lb, const void* beta, const void* c,
                              cublasLtMatrixLayout_t lc, void* d, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
  const auto& o = *reinterpret_cast<const Operation*>(operation);
  const Purpose p = purpose_of(o, la, lb, lc, ld);
  const Algorithm& chosen = algorithms().at(algorithm->data[0]);
  const cublasStatus_t status = judge(o, p);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const std::array<const void*, 4> all{a, b, c, d};
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i] == nullptr || alignment_of(all[i]) < chosen.alignment[i]) return invalid();
  // Aligned as when the algorithm was chosen; alignment beyond 64 bytes makes no difference.
  const auto worse = [](const void* pointer, std::uint32_t before) {
    return alignment_of(pointer) < std::min(before, 64U);
  };
  if (!(chosen.purpose == p) || worse(o.auxiliary, chosen.auxiliary_alignment) ||
      worse(o.bias, chosen.bias_alignment) || (c == d && lc != ld) ||
      workspace_bytes < workspace_of(p, chosen.parts) || alignment_of(workspace) < 256)
    return invalid();
  const auto run_both = [&]<class A, class B, class D, class Sum>(A, B, D, Sum) {
    run<A, B, D, Sum>(o, p, {a, b, c}, d, alpha, beta, chosen.parts, workspace);
  };
  const auto run_as = [&]<class T, class D, class Sum>(T t, D to, Sum sum) {
    run_both(t, t, to, sum);
  };
  using trireme::Bf16, trireme::Fp16, trireme::E4M3, trireme::E5M2;
  const bool wide = p.d.type == CUDA_R_32F;
  if (p.a.type == CUDA_R_8F_E4M3 && p.b.type == CUDA_R_8F_E4M3)
    wide ? run_both(E4M3{}, E4M3{}, float{}, float{}) : run_both(E4M3{}, E4M3{}, Bf16{}, float{});
  if (p.a.type == CUDA_R_8F_E4M3 && p.b.type == CUDA_R_8F_E5M2)
    wide ? run_both(E4M3{}, E5M2{}, float{}, float{}) : run_both(E4M3{}, E5M2{}, Bf16{}, float{});
  if (p.a.type == CUDA_R_64F) run_as(double{}, double{}, double{});
  if (p.a.type == CUDA_R_32F) run_as(float{}, float{}, float{});
  if (p.a.type == CUDA_R_16BF && p.d.type == CUDA_R_32F) run_as(Bf16{}, float{}, float{});
  if (p.a.type == CUDA_R_16BF && p.d.type != CUDA_R_32F) run_as(Bf16{}, Bf16{}, float{});
  if (p.a.type == CUDA_R_16F && p.d.type == CUDA_R_32F) run_as(Fp16{}, float{}, float{});
  if (p.a.type == CUDA_R_16F && p.d.type != CUDA_R_32F) run_as(Fp16{}, Fp16{}, float{});
  ++record().products;
  if (chosen.parts > 1) ++record().in_parts;
  record().stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}
