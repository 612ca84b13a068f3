#pragma once

#include <trireme/base/types.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

/// cuBLASLt without Kokkos: pointers, sizes and a stream, so that a test can run it on a host with
/// a substitute library.
namespace trireme::kernels {

/// Whether this build has the library (TRIREME_HAS_CUBLASLT). Without it, CublasLt's constructor
/// fails.
bool has_cublaslt();

/// Operation that the library applies to a product before storing it.
enum class LtEpilogue : std::uint8_t {
  none,
  bias,          ///< c = … + bias, one value per column
  gelu,          ///< auxiliary = … + bias if there is an auxiliary, c = gelu(auxiliary)
  gelu_gradient  ///< c = … · gelu'(auxiliary)
};

/// One-byte types, which are not in DType because no file stores them.
enum class LtFp8 : std::uint8_t { none, e4m3, e5m2 };

/// c = epilogue(alpha op(a) op(b) + beta c), row-major. op(a) [rows, depth], op(b) [depth,
/// columns], c and auxiliary [rows, columns]; strides are in elements from row to row. The
/// library's matrices are column-major, and a row-major c is a column-major cᵀ. The call to the
/// library is therefore
///
///     cᵀ = op(b)ᵀ op(a)ᵀ,
///
/// with b as the first operand, `columns` as its rows, and the same transpositions.
struct LtProduct {
  DType input = DType::fp32;   ///< type of a and b
  DType output = DType::fp32;  ///< type of c, bias and auxiliary: the input type or fp32
  /// One-byte operands, whose product is multiplied by *scale_a and *scale_b in device memory. Both
  /// or neither; then `input` is not used, the output is bf16 or fp32, only b is transposed, and
  /// all sizes are multiples of 16: the library has no other fp8 products before Blackwell.
  LtFp8 fp8_a = LtFp8::none;
  LtFp8 fp8_b = LtFp8::none;
  const float* scale_a = nullptr;
  const float* scale_b = nullptr;
  bool tf32 = false;  ///< rounds fp32 inputs to 11 bits first
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
  void* auxiliary = nullptr;   ///< read only by gelu_gradient
  std::int64_t stride_auxiliary = 0;
};

/// The library's handle, and the algorithms that its heuristics have chosen so far, one for each
/// kind of product. Products of a kind have the same types, sizes, transpositions, strides,
/// epilogue and alignment of arrays, up to the alignment of arenas, so that an array's offset in an
/// arena does not matter. The heuristics run once per kind and time nothing. Split sums must have a
/// fixed order. Therefore the same kinds have the same algorithms and the same bits in every run.
/// Belongs to the device that is current at construction, and, like its workspace, to one stream at
/// a time.
class CublasLt {
 public:
  /// workspace: `bytes` of device memory, 16-byte aligned, which must outlive this object.
  CublasLt(void* workspace, Bytes bytes);
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  /// Queues the product on `stream` (a cudaStream_t) and returns at once. Returns false, with
  /// nothing queued, if the library does not support the product: by its heuristics; by its
  /// documentation (other types, or an auxiliary matrix whose stride is not a multiple of 8); or
  /// because the auxiliary matrix does not begin at a multiple of 16 bytes. rows, columns and depth
  /// must not be 0.
  bool multiply(const LtProduct& product, void* stream);

  /// Number of calls of the heuristics so far: one per kind of product.
  std::int64_t questions() const;

  /// One line per kind of product: "bf16 128 × 64 × 32, b transposed, bias: algorithm 66, tile 20,
  /// …".
  std::vector<std::string> choices() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Version, "13.1.0"; empty without the library.
std::string cublaslt_version();

}  // namespace trireme::kernels
