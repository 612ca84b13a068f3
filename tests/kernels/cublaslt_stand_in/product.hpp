#pragma once

#include <cublasLt.h>

#include <compare>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "reference/elementwise.hpp"

/// Descriptors of a product in the stand-in, and the product by its definition.
namespace trireme::testing::stand_in {

struct Operation {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  std::int32_t transpose_a = CUBLAS_OP_N;
  std::int32_t transpose_b = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  void* auxiliary = nullptr;
  std::int64_t auxiliary_leading = 0;
  const float* scale_a = nullptr;  ///< for fp8 operands
  const float* scale_b = nullptr;
};

struct Layout {
  cudaDataType_t type;
  std::int64_t rows, columns, leading;
  auto operator<=>(const Layout&) const = default;
};

/// The only purpose for which an algorithm may be used.
struct Purpose {
  cublasComputeType_t compute;
  std::int32_t transpose_a, transpose_b;
  std::uint32_t epilogue;
  std::int64_t auxiliary_leading;
  Layout a, b, c, d;
  auto operator<=>(const Purpose&) const = default;
};

inline bool uses_bias(std::uint32_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}

inline bool uses_auxiliary(std::uint32_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_GELU_AUX || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
         epilogue == CUBLASLT_EPILOGUE_DGELU;
}

inline std::int64_t depth_of(const Purpose& p) {
  return p.transpose_a == CUBLAS_OP_N ? p.a.columns : p.a.rows;
}

/// Rounds to tf32, which has 10 bits of fraction, to nearest, ties to even.
inline float as_tf32(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  bits = (bits + 0xfffU + ((bits >> 13) & 1U)) & ~std::uint32_t{0x1fff};
  std::memcpy(&x, &bits, sizeof bits);
  return x;
}

/// A, B: types of the operands, D: type of C and D, Sum: type of the sums.
template <class A, class B, class D, class Sum>
struct Run {
  const Operation& o;
  const Purpose& p;
  const A* a;
  const B* b;
  const D* c;
  D* d;
  Sum alpha, beta;

  template <class T>
  Sum value(T x) const {
    if constexpr (std::is_same_v<T, float>)
      if (o.compute == CUBLAS_COMPUTE_32F_FAST_TF32) return as_tf32(x);
    return static_cast<Sum>(x);
  }
  Sum sum(std::int64_t i, std::int64_t j, std::int64_t begin, std::int64_t end) const {
    Sum total = 0;
    for (std::int64_t k = begin; k < end; ++k) {
      const std::int64_t at_a =
          o.transpose_a == CUBLAS_OP_N ? i + k * p.a.leading : k + i * p.a.leading;
      const std::int64_t at_b =
          o.transpose_b == CUBLAS_OP_N ? k + j * p.b.leading : j + k * p.b.leading;
      total += value(a[at_a]) * value(b[at_b]);
    }
    return total;
  }
  D finish(std::int64_t i, std::int64_t j, Sum total) const {
    Sum x = alpha * total;
    if (o.scale_a != nullptr) x *= static_cast<Sum>(*o.scale_a) * static_cast<Sum>(*o.scale_b);
    if (beta != 0) x += beta * static_cast<Sum>(c[i + j * p.c.leading]);
    if (uses_bias(o.epilogue)) x += static_cast<Sum>(static_cast<const D*>(o.bias)[i]);
    if (!uses_auxiliary(o.epilogue)) return static_cast<D>(x);
    D& kept = static_cast<D*>(o.auxiliary)[i + j * o.auxiliary_leading];
    if (o.epilogue == CUBLASLT_EPILOGUE_DGELU)
      return static_cast<D>(x * static_cast<Sum>(reference::gelu_slope(static_cast<double>(kept))));
    kept = static_cast<D>(x);
    return static_cast<D>(static_cast<Sum>(reference::gelu(static_cast<double>(x))));
  }
  /// Parts of the sums are stored in the workspace and added in order.
  void operator()(std::int32_t parts, void* workspace) const {
    const std::int64_t depth = depth_of(p);
    const std::int64_t each = (depth + parts - 1) / parts;
    Sum* kept = static_cast<Sum*>(workspace);
    const std::int64_t size = p.d.rows * p.d.columns;
    for (std::int32_t part = 0; part < parts && parts > 1; ++part)
      for (std::int64_t j = 0; j < p.d.columns; ++j)
        for (std::int64_t i = 0; i < p.d.rows; ++i)
          kept[part * size + i + j * p.d.rows] =
              sum(i, j, std::min(depth, part * each), std::min(depth, (part + 1) * each));
    for (std::int64_t j = 0; j < p.d.columns; ++j)
      for (std::int64_t i = 0; i < p.d.rows; ++i) {
        Sum total = parts > 1 ? 0 : sum(i, j, 0, depth);
        for (std::int32_t part = 0; part < parts && parts > 1; ++part)
          total += kept[part * size + i + j * p.d.rows];
        d[i + j * p.d.leading] = finish(i, j, total);
      }
  }
};

}  // namespace trireme::testing::stand_in
