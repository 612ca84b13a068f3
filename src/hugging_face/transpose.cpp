#include <trireme/hugging_face/transpose.hpp>

#include <trireme/base/check.hpp>

#include <algorithm>
#include <cstring>

namespace trireme::hugging_face {
namespace {

/// Tiles fit into the L1 cache: a row of 8-byte elements is two cache lines.
constexpr std::int64_t tile = 16;

template <int bytes>
void transpose_elements(const char* in, std::int64_t rows, std::int64_t columns, std::int64_t first,
                        std::int64_t last, char* out) {
  for (std::int64_t r0 = 0; r0 < rows; r0 += tile)
    for (std::int64_t c0 = first; c0 < last; c0 += tile)
      for (std::int64_t c = c0; c < std::min(c0 + tile, last); ++c)
        for (std::int64_t r = r0; r < std::min(r0 + tile, rows); ++r)
          std::memcpy(out + ((c - first) * rows + r) * bytes, in + (r * columns + c) * bytes,
                      bytes);
}

}  // namespace

void transpose_columns(const void* matrix, std::int64_t rows, std::int64_t columns,
                       std::int64_t first, std::int64_t last, std::int64_t element_bytes,
                       void* out) {
  check(0 <= first && first <= last && last <= columns, "columns [", first, ", ", last, ") of ",
        columns);
  const auto* in = static_cast<const char*>(matrix);
  auto* to = static_cast<char*>(out);
  if (element_bytes == 2) return transpose_elements<2>(in, rows, columns, first, last, to);
  if (element_bytes == 4) return transpose_elements<4>(in, rows, columns, first, last, to);
  if (element_bytes == 8) return transpose_elements<8>(in, rows, columns, first, last, to);
  throw Error(text("cannot transpose elements of ", element_bytes, " bytes; expected 2, 4 or 8"));
}

}  // namespace trireme::hugging_face
