#pragma once

#include <trireme/base/types.hpp>

#include <cstdint>
#include <optional>

namespace trireme::hugging_face {

/// Writes `count` values of type `from` as type `to`: the same bits if the types are equal,
/// otherwise rounded once, to nearest, ties to even. Types are fp64, fp32, bf16 and fp16; Error for
/// any other. Returns the position of the first finite value that is too large for `to` (it becomes
/// infinite), or std::nullopt. `in` and `out` must not overlap and need no alignment.
std::optional<std::int64_t> convert(DType from, const void* in, DType to, void* out,
                                    std::int64_t count);

/// Number of infinities and NaNs among these values, and the position of the first.
struct Nonfinite {
  std::int64_t count = 0;
  std::int64_t first = 0;
};
Nonfinite nonfinite(DType type, const void* data, std::int64_t count);

/// The value at position `at` of an array of one of these types.
double number_at(DType type, const void* data, std::int64_t at);

/// Writes columns [first, last) of a matrix [rows, columns] to the rows of `out` [last − first,
/// rows]. Both are contiguous, last axis fastest; elements of 2, 4 or 8 bytes, else an Error.
void transpose_columns(const void* matrix, std::int64_t rows, std::int64_t columns,
                       std::int64_t first, std::int64_t last, std::int64_t element_bytes,
                       void* out);

}  // namespace trireme::hugging_face
