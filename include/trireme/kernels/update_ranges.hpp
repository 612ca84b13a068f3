#pragma once

#include <trireme/kernels/lanes.hpp>
#include <trireme/tensor/views.hpp>

#include <cstdint>

/// One launch for many arrays, because most arrays are too small for a separate launch.
namespace trireme::kernels {

/// An array, or a block of an array, that a launch updates: its number of elements, and the offsets
/// of its first element in the arenas.
struct UpdateRange {
  std::int64_t first_chunk = 0;  ///< number of chunks (chunk_size elements) of all previous parts
  std::int64_t elements = 0;
  std::int64_t weight = 0;    ///< offset in the weights to update
  std::int64_t gradient = 0;  ///< offset in the gradients
  std::int64_t state = 0;     ///< offset in the optimizer's state
  std::int32_t array = 0;     ///< number of the array in the model
  std::int32_t decays = 1;    ///< 0: no weight decay
  std::int64_t rounded = 0;   ///< offset in the two-byte weights that the model computes with
  /// Element of the rank's array. Element e of it is element e / run · stride + e mod run + first
  /// of the global array.
  std::int64_t local = 0;
  std::int64_t run = 1;
  std::int64_t stride = 1;
  std::int64_t first = 0;
  std::int64_t factored = 0;  ///< number of the array among FactoredArrays
};

/// Parts in the order of their chunks; no part is empty.
struct UpdateRanges {
  View1<const UpdateRange> table;  ///< in device memory; empty: `only` is the single part
  std::int64_t chunks = 0;         ///< number of chunks of all parts
  UpdateRange only;
};

/// A single part: the first n elements of each view.
inline UpdateRanges whole_update(std::int64_t n) {
  UpdateRanges parts;
  parts.chunks = chunks_of(n);
  parts.only.elements = n;
  return parts;
}

namespace detail {

template <class F>
struct UpdateBody {
  F f;
  const UpdateRange* table;
  std::int64_t count;
  UpdateRange only;

  /// The part that contains chunk `chunk`: the last part that begins at or before it.
  KOKKOS_FORCEINLINE_FUNCTION UpdateRange part_of(std::int64_t chunk) const {
    if (count == 0) return only;
    std::int64_t found = 0;
    for (std::int64_t end = count; end - found > 1;) {
      const std::int64_t middle = (found + end) / 2;
      if (table[middle].first_chunk <= chunk)
        found = middle;
      else
        end = middle;
    }
    return table[found];
  }

  KOKKOS_FORCEINLINE_FUNCTION void operator()(const Team& team, std::int64_t chunk) const {
    UpdateRange part = part_of(chunk);
    const std::int64_t first = (chunk - part.first_chunk) * chunk_size;
    const std::int64_t left = part.elements - first;
    part.elements = left < chunk_size ? left : chunk_size;
    part.weight += first;
    part.gradient += first;
    part.state += first;
    part.rounded += first;
    part.local += first;
    f(team, part);
  }
};

}  // namespace detail

/// Launches f(team, part) for every chunk of every part; `part` has the chunk's elements and
/// offsets. A KOKKOS_LAMBDA f has the parameters `const Team&` and `const UpdateRange&`.
template <class F>
void for_parts(const char* label, const Exec& exec, const UpdateRanges& parts, const F& f) {
  for_rows(label, exec, parts.chunks,
           detail::UpdateBody<F>{f, parts.table.data(), extent(parts.table, 0), parts.only});
}

}  // namespace trireme::kernels
