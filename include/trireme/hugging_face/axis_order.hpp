#pragma once

#include <trireme/checkpoint/hyperslab.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme::hugging_face {

using checkpoint::Extents;

/// An array whose axes have one order in memory and another order in a file. Both are contiguous,
/// last axis fastest.
class AxisOrder {
 public:
  /// `extents`: in memory. The file's axis i is axis axes[i] in memory. Empty `axes`: the same
  /// order. Error unless `axes` has each axis once.
  AxisOrder(Extents extents, std::vector<std::size_t> axes);

  /// Consecutive elements of the file that are a block of the array.
  struct Panel {
    std::int64_t first = 0;
    std::int64_t count = 0;
    checkpoint::Slab slab;  ///< axes in the file's order
  };
  /// Panels of at most `most` elements that cover the file, in order.
  std::vector<Panel> panels(std::int64_t most) const;

  /// Copies the panel's elements between `panel` and `rows`, which holds rows [first, last) of the
  /// first axis in memory. Ignores elements in other rows. Error unless `element_bytes` is 2, 4
  /// or 8.
  void to_memory(const Panel& from, const void* panel, std::int64_t first, std::int64_t last,
                 std::int64_t element_bytes, void* rows) const;
  void to_file(const void* rows, std::int64_t first, std::int64_t last, std::int64_t element_bytes,
               const Panel& to, void* panel) const;

  std::int64_t rows() const { return rows_; }  ///< extent of the first axis in memory
  std::int64_t row_elements() const { return strides_[place_of_rows_]; }

 private:
  Extents extents_;  ///< in the file's order
  Extents strides_;  ///< in memory, of the axes in the file's order
  std::int64_t rows_ = 0;
  std::size_t place_of_rows_ = 0;  ///< axis of the file that is the first axis in memory
};

}  // namespace trireme::hugging_face
