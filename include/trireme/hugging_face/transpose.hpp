#pragma once

#include <cstdint>

namespace trireme::hugging_face {

/// Writes columns [first, last) of a matrix [rows, columns] to the rows of `out` [last − first,
/// rows]. Both are contiguous, last axis fastest; elements of 2, 4 or 8 bytes, Error for others.
void transpose_columns(const void* matrix, std::int64_t rows, std::int64_t columns,
                       std::int64_t first, std::int64_t last, std::int64_t element_bytes,
                       void* out);

}  // namespace trireme::hugging_face
