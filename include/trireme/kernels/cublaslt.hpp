#pragma once

#include <trireme/base/types.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

/// cuBLASLt on pointers and a stream, without Kokkos, so that tests can substitute the library.
namespace trireme::kernels {

/// Whether this build has cuBLASLt; otherwise CublasLt's constructor fails.
bool has_cublaslt();

/// Operation that cuBLASLt applies to p = alpha op(a) op(b) + beta c before it stores the result.
enum class LtEpilogue : std::uint8_t {
  none,
  bias,          ///< c = p + bias, one value per column
  gelu,          ///< auxiliary = p + bias (null: 0), c = gelu of the unrounded auxiliary
  gelu_gradient  ///< c = p · gelu'(auxiliary)
};

/// One-byte types of operands. They are not in DType, because no file stores them.
enum class LtFp8 : std::uint8_t { none, e4m3, e5m2 };

/// c = epilogue(alpha op(a) op(b) + beta c), row-major. op(a) [rows, depth], op(b) [depth,
/// columns], c and auxiliary [rows, columns]; strides are in elements from row to row. cuBLASLt's
/// matrices are column-major, and a row-major c is a column-major cᵀ. The call of cuBLASLt is
/// therefore
///
///     cᵀ = op(b)ᵀ op(a)ᵀ,
///
/// with b as the first operand, `columns` as the number of rows, and unchanged transposition flags.
struct LtProduct {
  DType input = DType::fp32;   ///< type of a and b
  DType output = DType::fp32;  ///< type of c, bias and auxiliary: `input` or fp32
  /// One-byte operands, for both a and b or for neither. Their product is multiplied by *scale_a
  /// and *scale_b, which are in device memory. `input` is then not used, `output` is bf16 or fp32,
  /// only b is transposed, there is no auxiliary, and all sizes and strides are multiples of 16.
  LtFp8 fp8_a = LtFp8::none;
  LtFp8 fp8_b = LtFp8::none;
  const float* scale_a = nullptr;
  const float* scale_b = nullptr;
  bool tf32 = false;  ///< rounds fp32 operands to tf32 first
  bool transposed_a = false;
  bool transposed_b = false;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t depth = 0;
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  std::int64_t stride_a = 0;
  std::int64_t stride_b = 0;
  std::int64_t stride_c = 0;
  double alpha = 1;
  double beta = 0;
  LtEpilogue epilogue = LtEpilogue::none;
  const void* bias = nullptr;  ///< [columns]
  void* auxiliary = nullptr;   ///< written by gelu, read by gelu_gradient, otherwise null
  std::int64_t stride_auxiliary = 0;
};

/// cuBLASLt's handle, and the algorithms that its heuristics have chosen so far, one for each kind
/// of product. Products of a kind have the same types, sizes, strides, transpositions, epilogue and
/// alignment of arrays. The heuristics measure nothing, and may choose only algorithms that sum in
/// a fixed order. A CublasLt belongs to the device that is current at construction. Only one stream
/// at a time may use it and its workspace.
class CublasLt {
 public:
  /// workspace: `bytes` bytes of device memory, of which the library uses those from the first
  /// multiple of 256 bytes on. It must outlive this object.
  CublasLt(void* workspace, Bytes bytes);
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  /// Queues the product on `stream` (a cudaStream_t) and returns at once. Returns false, with
  /// nothing queued, if cuBLASLt does not support the product. Error if rows, columns or depth is
  /// 0, or if epilogue and arrays do not match.
  bool multiply(const LtProduct& product, void* stream);

  /// Number of calls of the heuristics so far: at most one per kind of product.
  std::int64_t questions() const;

  /// One line per kind of product, such as "bf16 128 × 64 × 32, b transposed, bias: algorithm 66,
  /// tile 20, …", or with "none in the library" if cuBLASLt does not support the product.
  std::vector<std::string> choices() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Version of cuBLASLt, such as "13.1.0"; empty in builds without cuBLASLt.
std::string cublaslt_version();

}  // namespace trireme::kernels
